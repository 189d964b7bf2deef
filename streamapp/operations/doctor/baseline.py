"""The baseline: a file with findings that a team has accepted. The team keeps and reviews the file like code."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from streamapp.errors import ConfigError
from streamapp.operations.doctor.registry import CHECKS, Finding

__all__ = ["Baseline"]


@dataclass(frozen=True)
class Baseline:
    """Code and subject of each accepted finding, with a reason that somebody wrote."""

    accepted: dict[tuple[str, str], str]

    @classmethod
    def parse(cls, text: str) -> Baseline:
        """Reads the accepted findings from JSON, a list of objects with code, subject and, if known, ``why``.

        Raises `ConfigError` for any other text, and for codes that the doctor does not know.

        >>> Baseline.parse('[{"code": "SA101", "subject": "flights", "why": "a test cluster"}]').accepted
        {('SA101', 'flights'): 'a test cluster'}
        """
        try:
            accepted = {
                (str(row["code"]), str(row["subject"])): str(row.get("why", "")) for row in json.loads(text)
            }
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(
                f'the baseline has to be a JSON list of {{"code": ..., "subject": ..., "why": ...}}: {error!r}'
            ) from None
        unknown = sorted({code for code, _ in accepted} - CHECKS.keys())
        if unknown:
            raise ConfigError(
                f"the baseline has codes that the doctor does not know: {', '.join(unknown)}. Correct or remove them"
            )
        return cls(accepted)

    def text_with(self, findings: Iterable[Finding]) -> str:
        """The text of a baseline for exactly these findings. Reasons that this baseline already has are kept."""
        rows = [
            {"code": code, "subject": subject, "why": self.accepted.get((code, subject), "")}
            for code, subject in sorted({finding.key for finding in findings})
        ]
        return json.dumps(rows, indent=2) + "\n"

    def split(self, findings: Iterable[Finding]) -> tuple[list[Finding], list[tuple[str, str]]]:
        """The findings that are not accepted, and the accepted findings that are not found any more."""
        found = list(findings)
        keys = {finding.key for finding in found}
        return [each for each in found if each.key not in self.accepted], sorted(self.accepted.keys() - keys)
