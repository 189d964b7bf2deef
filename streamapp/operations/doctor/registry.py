"""The checks, each a function with a code, a reason, a remedy and a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from streamapp.operations.doctor.survey import Survey

__all__ = ["CHECKS", "Check", "Finding", "Threat", "check", "examine"]

Threat = Literal["loses", "doubles", "starves", "stalls"]
Found = Iterator[tuple[str, str]]
"""(subject, what was seen) for each thing that is not as it should be."""


@dataclass(frozen=True)
class Check:
    """One thing that the doctor looks at. ``code`` stays for good: baselines name it."""

    code: str
    title: str
    threat: Threat
    reason: str
    remedy: str
    page: str
    look: Callable[[Survey], Found]


@dataclass(frozen=True)
class Finding:
    """One subject, such as a topic, that a check objects to."""

    check: Check
    subject: str
    seen: str

    @property
    def key(self) -> tuple[str, str]:
        """What a baseline remembers."""
        return self.check.code, self.subject


CHECKS: dict[str, Check] = {}
"""Code -> check; filled by the modules of the families (`families.py`)."""


def check(
    code: str, title: str, threat: Threat, *, reason: str, remedy: str, page: str
) -> Callable[[Callable[[Survey], Found]], Callable[[Survey], Found]]:
    """Registers a function of a `Survey` that yields a subject and what was seen, for each finding."""

    def register(look: Callable[[Survey], Found]) -> Callable[[Survey], Found]:
        assert code not in CHECKS, f"{code} is there twice"
        CHECKS[code] = Check(code, title, threat, reason, remedy, page, look)
        return look

    return register


def examine(survey: Survey, checks: Iterable[Check]) -> list[Finding]:
    """All findings, by code and subject. Raises `BrokerError` when the cluster does not answer."""
    return [
        Finding(check, subject, seen)
        for check in sorted(checks, key=lambda check: check.code)
        for subject, seen in sorted(check.look(survey))
    ]
