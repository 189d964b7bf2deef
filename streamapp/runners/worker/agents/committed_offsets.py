"""The group's offsets in the topics of agents, and the notes in the metadata of these offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, NamedTuple

from faust.types import TP

from streamapp.broker.leader_epochs import LeaderEpochs
from streamapp.engine.metadata import MOST_METADATA, changelog_notes, epoch_in, metadata_of, with_epoch
from streamapp.engine.topic_notes import note_of_topics, noted_as_own, noted_topics
from streamapp.records import TopicPartition
from streamapp.runners.earlier_topics import check_not_anew, ids_of
from streamapp.runners.worker.agents.table_offsets import check_tables
from streamapp.runners.worker.agents.topics import changelogs_of_agents, topics_of_agents
from streamapp.runners.worker.clients import PATIENCE_SECONDS, admin_client, find_committed, find_topics

__all__ = ["DueOffsets", "GroupOffsets"]

_OTHER_LETTERS = 155
"""The letters of metadata beside the note of topics: the id of the topic, the name of the transaction, the leader
epoch."""


class DueOffsets(NamedTuple):
    """The offsets of a commit."""

    positions: dict[TP, int]
    notes: tuple[str, ...]
    """The notes for the metadata of each offset."""
    topics: Set[str]
    """The topics in which the group has offsets after the commit."""


class GroupOffsets:
    """The offsets that the group has committed in the topics of agents, as far as this worker knows."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.topic_ids: dict[str, str] = {}
        """The ids of the agents' topics, and of their changelogs, when this worker first read them. Commits name these
        ids."""
        self.epochs: LeaderEpochs = LeaderEpochs()
        """The leader epochs of the records that this worker has read, and of those before the committed offsets."""
        self._changelog_notes: tuple[str, ...] = ()
        """The names in commits that have the ids of the changelogs."""
        self._committed: dict[TopicPartition, tuple[int, str]] = {}
        """The group's offsets of the agents' partitions, with their metadata, at the last look."""
        self._topics: Set[str] = frozenset()
        """The topics in which the group has committed offsets."""
        self._noted: Set[str] = frozenset()
        """The topics of ``_topics`` that the metadata of each offset of this worker's partitions names."""
        self._bare: Set[str] = frozenset()
        """The topics in which the group has offsets without metadata, in partitions of other workers."""

    async def read(self, partitions: Iterable[TP]) -> dict[TP, int]:
        """The group's offset of each partition; negative: none. Waits until open transactions end.

        Raises `BrokerError` if brokers do not tell the offsets within 300 s.
        """
        plain = [TopicPartition(*tp) for tp in partitions]
        found = await asyncio.to_thread(find_committed, self._app.config, plain, PATIENCE_SECONDS)
        self._committed = {tp: each for tp, each in found.items() if each[0] >= 0}
        topics = self._of_all_agents(found)
        texts = [metadata for _, metadata in self._committed.values()]
        self._topics = {tp.topic for tp in self._committed} | noted_topics(texts, topics)
        self._noted = self._topics.intersection(*(noted_as_own([text], topics) for text in texts))
        return {TP(*tp): offset for tp, (offset, _) in found.items()}

    async def check(self, found: Mapping[TP, int]) -> dict[TP, int]:
        """The offsets that another tool has set, among ``found``. The next commit must write them with metadata.

        ``found`` is the result of `read`.

        Learns the ids of topics. Raises `TopologyError` if the group has committed in an earlier topic of a name, or if
        a changelog was created anew since a commit. Raises the same error if tables of agents have rows, and the group
        has lost the offsets of these rows.
        """
        return await asyncio.to_thread(self._check, found)

    def _check(self, found: Mapping[TP, int]) -> dict[TP, int]:
        config = self._app.config
        admin, topics = admin_client(config), {tp.topic for tp in found}
        self.topic_ids |= check_not_anew(config.application_id, admin, self._committed)
        changelogs = changelogs_of_agents(self._app)
        counts: dict[str, int] = {}
        if changelogs:
            existing = find_topics(config, admin, PATIENCE_SECONDS).topics
            counts = {name: len(topic.partitions) for name, topic in existing.items()}
        self.topic_ids |= ids_of(admin, (topics | counts.keys() & changelogs) - self.topic_ids.keys())
        self._changelog_notes = changelog_notes(
            {topic: self.topic_ids[topic] for topic in changelogs if topic in self.topic_ids}
        )
        if not changelogs:
            return {}
        # Other workers may have all partitions of another topic, so the topics of all agents count. Topics of the
        # topology do not count, because their offsets may be there although the others are lost.
        bare = check_tables(self._app, self._of_all_agents(found), counts)
        here = {tp: offset for tp, offset in found.items() if offset >= 0 and TopicPartition(*tp) in bare}
        self._bare = {tp.topic for tp in bare if TP(*tp) not in here}
        return here

    def begin(self, partitions: Iterable[TP]) -> None:
        """Learns that reading begins at the offsets of the last `read`."""
        for tp in (TopicPartition(*each) for each in partitions):
            offset, metadata = self._committed.get(tp, (-1, ""))
            end = epoch_in(metadata, tp, offset)
            self.epochs.forget(tp)
            if end is not None:
                self.epochs.begin(tp, end)

    def metadata(self, tp: TopicPartition, position: int, *notes: str) -> str:
        """The metadata of a position in a commit, with the id of the topic.

        The metadata also has the leader epoch of the last record before the position.
        """
        text = metadata_of(self.topic_ids.get(tp.topic), *notes)
        return with_epoch(text, tp, position, self.epochs.before(tp, position))

    def _of_all_agents(self, partitions: Iterable[TP | TopicPartition]) -> set[str]:
        return {*topics_of_agents(self._app), *(tp.topic for tp in partitions)}

    def due(self, positions: dict[TP, int], placed: Callable[[], dict[TP, int]]) -> DueOffsets:
        """The offsets of a commit with these positions. ``placed`` gives the last offsets of all partitions.

        The first note says that the group has offsets in the topics. The other notes have the ids of changelogs. If the
        first note is new, the offsets of all partitions are committed with it. A topic loses its own notes with its
        offsets, so the offsets of the other topics need the note. Brokers refuse a commit with too much metadata. So
        the offsets of such a commit have no notes, and the next smaller commits have them.
        """
        topics = (self._topics | {tp.topic for tp in positions}) - self._bare
        if not changelogs_of_agents(self._app):
            return DueOffsets(positions, (), topics)
        notes = note_of_topics(topics, topics), *self._changelog_notes
        most = MOST_METADATA // (len(metadata_of(None, *notes)) + _OTHER_LETTERS)
        if topics != self._noted:
            every = placed() | positions
            positions = every if len(every) <= most else positions
        return DueOffsets(positions, notes if len(positions) <= most else (), topics)

    def committed(self, offsets: DueOffsets) -> None:
        """Learns that a commit is done."""
        self._topics = self._noted = offsets.topics
