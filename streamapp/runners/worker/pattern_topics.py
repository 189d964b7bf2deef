"""Topics of patterns that come and go while a worker runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from streamapp.broker.requests import LastingAdmin
from streamapp.runners.worker.topics import Topics, existing_topics, prepare_topics
from streamapp.topology.plan import Plan

__all__ = ["LOOK_SECONDS", "PatternTopics"]

logger: logging.Logger = logging.getLogger(__name__)

LOOK_SECONDS: float = 30.0
"""The time between two looks of a worker."""


class PatternTopics:
    """Looks for changes among the topics that only patterns of the plan name. ``topics`` are those of the start.

    A topic that brokers do not know counts as deleted only after two looks in a row. One look is not enough: a broker
    that starts may not know all topics yet.
    """

    def __init__(self, plan: Plan, admin: LastingAdmin, topics: Topics) -> None:
        self._plan = plan
        self._admin = admin
        self.topics = topics
        """The topics that the worker reads now. The worker changes this attribute after a `look`."""
        self._absent: frozenset[str] = frozenset()
        """The topics that brokers did not know at the last look."""

    @property
    def found(self) -> frozenset[str]:
        """The topics among ``topics`` that only patterns name."""
        return self._of_patterns(self.topics.partitions)

    def look(self) -> Topics | None:
        """The topics that the worker should read from now on. None: nothing has changed, or the change is not certain.

        Waits for brokers. Raises the errors of `prepare_topics` if the topology cannot work with the topics of now.
        """
        existing = existing_topics(self._plan, self._admin)
        known, now = self.found, self._of_patterns(existing)
        new, gone = now - known, self._absent - now
        self._absent = known - now
        read = {topic for topics in self.topics.sources.values() for topic in topics}
        if not (new or gone) or not read - gone <= existing.keys():
            return None  # the next look tells if the broker that has answered lacks topics
        for topics, event in ((new, "is new"), (gone, "was deleted")):
            for topic in sorted(topics):
                logger.info(
                    "the topic %s %s, which the pattern %s matches",
                    topic,
                    event,
                    self._plan.pattern_of(topic),
                )
        found, start = prepare_topics(self._plan, self._admin), self.topics
        ids = found.ids_of(self._admin, {topic for names in found.sources.values() for topic in names})
        # A topic that has got more partitions ends the worker at the next assignment.
        counts = {**found.partitions, **{topic: start.partitions[topic] for topic in read - gone}}
        from_outside = {**start.from_outside, **found.from_outside}
        return replace(
            found, partitions=counts, ids=ids, first_new=start.first_new, from_outside=from_outside
        )

    def _of_patterns(self, topics: Iterable[str]) -> frozenset[str]:
        return frozenset(filter(self._plan.pattern_of, topics))
