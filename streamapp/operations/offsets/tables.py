"""Finds tables that would not fit new offsets: a table has records that come again, or lacks records that are
skipped."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from streamapp.operations.offsets.subject import Subject

__all__ = ["Contradiction", "contradictions"]

Direction = Literal["back", "forward"]


@dataclass(frozen=True)
class Contradiction:
    """A table that would not fit new offsets.

    ``known`` is False if only the name of the topic says that it is a table.
    """

    store: str
    changelog: str
    directions: tuple[Direction, ...]
    known: bool = True

    def __str__(self) -> str:
        """The line that tells users why the new offsets do not fit the table.

        >>> print(Contradiction("counts", "flights-counts-changelog", ("back",)))
        counts (flights-counts-changelog) has the records behind the new offsets in it: they would count twice
        """
        said = {
            "back": "has the records behind the new offsets in it: they would count twice",
            "forward": "does not have the records that are passed over, and never will",
        }
        may = "" if self.known else " (as its name says; which inputs feed it, only the application knows)"
        return (
            f"{self.store} ({self.changelog}) {'; and it '.join(said[each] for each in self.directions)}{may}"
        )


def contradictions(
    subject: Subject, back: Collection[str], forward: Collection[str]
) -> tuple[Contradiction, ...]:
    """The tables that have records of topics whose offsets go back, or miss records of those that go forward."""
    changelogs = subject.internal("changelog")
    if not back and not forward:
        return ()
    if subject.plan is None:
        directions = _directions(bool(back), bool(forward))
        return tuple(Contradiction(store, topic, directions, False) for store, topic in changelogs.items())
    found = []
    behind, ahead = subject.plan.fed_by(back), subject.plan.fed_by(forward)
    for sub in subject.plan.subtopologies:
        for store, topic in sub.changelog_topics.items():
            # A table that is its own input topic is filled from there again, record by record.
            if topic.name in changelogs.values() and (sub in behind or sub in ahead):
                found.append(Contradiction(store, topic.name, _directions(sub in behind, sub in ahead)))
    return tuple(found)


def _directions(back: bool, forward: bool) -> tuple[Direction, ...]:
    both: tuple[tuple[Direction, bool], ...] = (("back", back), ("forward", forward))
    return tuple(direction for direction, so in both if so)
