"""The registry of checks. A check is a function with a code, a reason, a remedy and a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from streamapp.operations.doctor.survey import Survey

__all__ = ["CHECKS", "Check", "Finding", "Threat", "alter_topic", "check", "examine"]

Threat = Literal["loses", "doubles", "starves", "stalls", "costs"]
Found = Iterator[tuple[str, str]]
"""The subject and the observation of each finding."""


@dataclass(frozen=True)
class Check:
    """One check of the doctor. ``code`` never changes, because baselines contain codes."""

    code: str
    title: str
    threat: Threat
    reason: str
    remedy: str
    page: str
    look: Callable[[Survey], Found]


@dataclass(frozen=True)
class Finding:
    """One subject with a danger, such as a topic, and the check that has found the danger."""

    check: Check
    subject: str
    seen: str

    @property
    def key(self) -> tuple[str, str]:
        """Code and subject, which identify the finding in a baseline."""
        return self.check.code, self.subject


def alter_topic(settings: str) -> str:
    """The command that changes settings of a topic, for a remedy. The command is set as code, so its end is visible.

    >>> alter_topic("min.insync.replicas=2")
    'Run `kafka-configs --bootstrap-server ... --alter --entity-type topics --entity-name TOPIC --add-config \
min.insync.replicas=2`'
    """
    return (
        "Run `kafka-configs --bootstrap-server ... --alter --entity-type topics --entity-name TOPIC --add-config "
        f"{settings}`"
    )


CHECKS: dict[str, Check] = {}
"""Code -> check; the modules in ``checks`` fill this table when they are imported."""


def check(
    code: str, title: str, threat: Threat, *, reason: str, remedy: str, page: str
) -> Callable[[Callable[[Survey], Found]], Callable[[Survey], Found]]:
    """Registers a function of a `Survey` that yields the subject and the observation of each finding."""

    def register(look: Callable[[Survey], Found]) -> Callable[[Survey], Found]:
        assert code not in CHECKS, f"two checks have the code {code}"
        CHECKS[code] = Check(code, title, threat, reason, remedy, page, look)
        return look

    return register


def examine(survey: Survey, checks: Iterable[Check]) -> list[Finding]:
    """All findings, by code and subject. Raises `BrokerError` if the cluster does not answer."""
    return [
        Finding(check, subject, seen)
        for check in sorted(checks, key=lambda check: check.code)
        for subject, seen in sorted(check.look(survey))
    ]
