"""The results of a comparison of two versions of a topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

__all__ = ["Change", "Compatibility", "Finding", "Need", "Snapshot"]

Snapshot = Mapping[str, Any]
"""The data of ``streamapp describe --json``, or a part of this data."""


class Need(IntEnum):
    """The work that a deployment needs. A larger value means more work."""

    NOTHING = 0
    """Start the new version, which goes on with the state, the internal topics and the positions of the old version."""
    MIGRATION = 1
    """The new version can go on with the existing state, but you first have to do or accept something, which the
    finding names."""
    RESET = 2
    """The existing state contradicts the new topology. Reset the application, or use a new application id. Workers or
    a backfill then compute the state again."""


Change = tuple[Need, str, str]
"""The need of a change, the reason, and the remedy or no text."""


@dataclass(frozen=True)
class Finding:
    """The result for one part of a topology, compared between two versions. ``subject`` names this part, for example a
    store."""

    need: Need
    subject: str
    why: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f". {self.remedy}" if self.remedy else ""
        return f"{self.need.name.lower():<9}  {self.subject}: {self.why}{remedy}"


@dataclass(frozen=True)
class Compatibility:
    """The result of `compare_topologies`. Its text has one line for each finding."""

    findings: tuple[Finding, ...]

    @property
    def need(self) -> Need:
        """The largest need of all findings."""
        return max((finding.need for finding in self.findings), default=Need.NOTHING)

    def __str__(self) -> str:
        return "\n".join([f"The deployment needs: {self.need.name.lower()}", *map(str, self.findings)])
