"""`TaskSession`: one task from the opening of its state to its close. A runner calls these steps in this order:

    open            opens the state; deletes damaged state, if changelogs have all of it
    continue_from   takes the metadata that an earlier session has committed with its positions
    restore         applies changelog records, from the offset of the local state to the end of the changelog
    start           creates the processors; the task can then process records
      drive           `Task.enqueue`, `Task.process`, `Task.punctuate_wall_clock`, as often as needed
      commit          flush, acknowledge, changelog ends, positions, persist; several sessions share one transaction
    close           drops all changes since the last commit

`runner_ports` has the interfaces that the runner implements. A runner may close a session after any step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from streamapp.engine.metadata import MOST_METADATA
from streamapp.engine.runner_ports import Changelogs, Position, StateHome, TaskEnvironment, Transaction
from streamapp.engine.store_notes import check_notes, not_of_this_store, unnoted, without_notes
from streamapp.engine.task import Task
from streamapp.errors import StreamsError, TaskCorruptedError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.state.backend import MemoryBackend, StateBackend, StateDamagedError
from streamapp.topology.plan import Subtopology

__all__ = ["Restoration", "TaskSession", "commit"]

logger: logging.Logger = logging.getLogger(__name__)
S = TypeVar("S", bound="TaskSession")


class Restoration(NamedTuple):
    """The part of a changelog, as a range of offsets, that a store has to read."""

    partition: TopicPartition
    store: str
    start: int
    end: int
    """Exclusive."""


class TaskSession:
    """One task of a sub-topology, with its state open.

    ``inputs`` are the partitions that the task reads (default: partition ``partition`` of each source topic). Raises
    the errors of `StateHome.open`. Damaged state is deleted, and later restored from its changelogs. So
    `StateDamagedError` is raised only if a persistent store has no changelog, or if the new state is damaged, too.
    """

    def __init__(
        self,
        environment: TaskEnvironment,
        subtopology: Subtopology,
        partition: int,
        home: StateHome,
        inputs: Iterable[TopicPartition] | None = None,
    ) -> None:
        self._home = home
        self.name: str = f"{subtopology.id}_{partition}"
        self.subtopology = subtopology
        self.changelogs: dict[TopicPartition, str] = {
            TopicPartition(topic.name, partition): store
            for store, topic in subtopology.changelog_topics.items()
        }
        """The store of each changelog partition."""
        self.starts: dict[TopicPartition, int] = {}
        """The first offset to read, by input: the committed offset, or the one that ``auto_offset_reset`` gives."""
        self._unnoted: frozenset[str] = frozenset()
        """The stores of which the commit of the earlier session knows nothing."""
        self.running: bool = False
        """True between `start` and `close`."""
        backend = self._open_state()
        try:
            self.task: Task = Task(environment, subtopology, partition, backend, inputs)
        except BaseException:
            backend.close()
            raise
        self.inputs: tuple[TopicPartition, ...] = self.task.inputs

    # ------------------------------------------------------------------ before the start

    @property
    def restorable(self) -> bool:
        """True if each persistent store has a changelog."""
        logged = self.subtopology.changelog_topics
        return all(spec.name in logged for spec in self.subtopology.stores if spec.persistent)

    def continue_from(
        self, metadata: Mapping[TopicPartition, str], starts: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Takes the metadata that an earlier session has committed with its positions.

        ``starts`` are the first offsets to read, if the runner knows them before the restore. A source topic may serve
        as a changelog (``topology_optimization``). The restore of such a topic ends at its start, because the task
        reads the later records as input.

        Raises `TopologyError` if a store of the earlier session had another definition. Raises the same error if a
        store has local state, but the earlier session did not have this store.
        """
        self.starts = dict(starts or {})
        self.task.continue_from(metadata)
        check_notes(self.task.plan, metadata)
        self._unnoted = unnoted(self.task.plan, metadata)
        for store in self._unnoted & {name for name, offset in self.task.changelog_offsets.items() if offset}:
            raise not_of_this_store(store, self.subtopology.changelog_topics[store].name)

    def restorations(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> list[Restoration]:
        """The ranges of changelog records that the stores lack. ``spans`` has first offset and end of each changelog; a
        changelog that is missing in ``spans`` is not restored.

        Raises `TaskCorruptedError` in the cases of `restore_start`.
        """
        lacking = []
        local = self.task.changelog_offsets
        for tp, store in self.changelogs.items():
            if tp in spans:
                first, end = spans[tp]
                start = self.restore_start(tp, local.get(store, 0), first, end)
                # A source topic that serves as changelog is restored up to its position: later records come as input.
                end = min(end, self.starts.get(tp, end))
                if start < end:
                    lacking.append(Restoration(tp, store, start, end))
        return lacking

    def restore_start(self, tp: TopicPartition, local: int, first: int, end: int) -> int:
        """The first offset to read of a changelog.

        ``local`` is the offset up to which the local state is complete. ``first`` is the first offset of the changelog.
        ``end`` is its end, or the offset from which on the changelog has other records now. Raises `TaskCorruptedError`
        if ``end`` is before ``local``. The same error comes if the changelog begins after ``local``, because records
        are missing then. A changelog whose records may be deleted (``cleanup.policy`` other than ``compact``) may begin
        later.
        """
        store = self.changelogs[tp]
        if local > end:
            raise TaskCorruptedError(
                f"task {self.name}: the local state of {store} is at offset {local} of {tp}, which lacks the "
                f"records that the state has from offset {end} on. The changelog was deleted or lost records, so it "
                "lacks rows of the table. Restore the topic; or, to compute all tables anew, stop all "
                "workers and run `streamapp reset`. Without "
                f"{self._home.place(self.name)}, the task goes on with the rows that the changelog has"
            )
        topic = self.subtopology.changelog_topics[store]
        # The state's offset does not count the marker of the last commit, which follows it.
        marker = 1 if local else 0
        if local + marker < first and topic.config.get("cleanup.policy") == "compact":
            raise TaskCorruptedError(
                f"task {self.name}: the changelog {tp} begins at offset {first}, and the local state of {store} is at "
                f"{local}. The records between were deleted, by retention or on request, and the table cannot be "
                "restored. Restore the topic; or, to compute the tables anew, stop all workers and run "
                "`streamapp reset`"
            )
        return max(local, first)

    def restore(self, store: str, batch: RecordBatch) -> None:
        """Applies changelog records of a store, in order, before `start`.

        Raises `TopologyError` if the earlier session did not have the store (`continue_from`), so that these records
        belong to another store.
        """
        if self.running:
            raise StreamsError(f"task {self.name} runs already: its stores cannot be restored any more")
        if store in self._unnoted and batch.offsets:
            raise not_of_this_store(store, self.subtopology.changelog_topics[store].name)
        self.task.restore(store, batch)

    def restore_from(self, changelogs: Changelogs) -> int:
        """Restores all stores from their changelogs, one after another. Returns the number of records."""
        restored = 0
        for tp, store, start, end in self.restorations(changelogs.spans(self.changelogs)):
            reader = changelogs.open(tp, start, end)
            try:
                while (batch := reader.read()) is not None:
                    self.restore(store, batch)
                    restored += len(batch.offsets)
            finally:
                reader.close()
        return restored

    def start(self) -> None:
        """Creates the processors. The task can process records afterwards."""
        if self.running:
            raise StreamsError(f"task {self.name} runs already")
        self.task.init()
        self.running = True

    # ------------------------------------------------------------------ commit

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to process, by input."""
        return {**self.starts, **self.task.positions}

    @property
    def state_offset(self) -> int:
        """The sum of the changelog offsets of the stores. The newer one of two copies of a state has the larger sum."""
        return sum(self._state_offsets().values())

    def pass_over_gaps(self, read_up_to: Callable[[TopicPartition], int]) -> None:
        """Moves positions behind transaction markers and gaps in the inputs, which have no record for the task.

        Otherwise Kafka's own tools would show a lag of the group although all records are processed. ``read_up_to``
        gives the offset up to which an input has been read.
        """
        waiting = self.task.buffered
        for tp, position in self.positions.items():
            if not waiting.get(tp) and (reached := read_up_to(tp)) > position:
                self.task.skip_to(tp, reached)

    def commit_positions(self) -> dict[TopicPartition, Position]:
        """The positions of the inputs for the next commit.

        A task that has processed no record gives the positions at which it started. So each commit has offsets, and
        brokers can refuse the offsets of a worker that has lost the task (KIP-447). Otherwise such a worker would note
        the changelog ends of its successor as those of its own state. The metadata of these positions is new, because
        time may go on without a record (``idle_timeout``).

        Inputs without a record since the start are committed, too, if their metadata has to be new (`Task.to_note`). An
        example is the first offset of the task in a topic, because the offset of each input notes that topic.
        """
        positions = self.task.positions or self.starts
        self.task.with_offsets.update(tp.topic for tp in positions)
        positions = {tp: self.starts[tp] for tp in self.task.to_note if tp in self.starts} | positions
        metadata = self.task.commit_metadata
        return {tp: Position(offset, metadata.get(tp, "")) for tp, offset in positions.items()}

    def commit_alone(self) -> None:
        """Commits without Kafka: flushes the record caches, and writes the buffers of the stores to the backend."""
        self.task.flush()
        self.task.persist({})

    # ------------------------------------------------------------------ the end

    def close(self) -> int:
        """Closes the task. Returns the `state_offset` of the persistent stores, whose state stays in the home."""
        persistent = {spec.name for spec in self.subtopology.stores if spec.persistent}
        stays = sum(offset for store, offset in self._state_offsets().items() if store in persistent)
        self.running = False
        self.task.close()
        return stays

    def wipe(self) -> None:
        """Deletes the persistent state. Called after `close`."""
        self._home.wipe(self.name)

    # ------------------------------------------------------------------ state and offsets

    def _open_state(self) -> StateBackend:
        stores = [spec.name for spec in self.subtopology.stores if spec.persistent]
        if not stores:
            return MemoryBackend()
        try:
            return self._home.open(self.name, stores)
        except StateDamagedError as error:
            if not self.restorable:
                raise
            logger.warning("task %s: its local state is damaged and is restored anew. %s", self.name, error)
            self._home.wipe(self.name)
            return self._home.open(self.name, stores)

    def _state_offsets(self) -> dict[str, int]:
        logged = set(self.changelogs.values())
        return {store: offset for store, offset in self.task.changelog_offsets.items() if store in logged}


def commit(
    sessions: Sequence[S],
    transaction: Transaction,
    works_on: Callable[[S | None], None] = lambda session: None,
) -> dict[TopicPartition, Position]:
    """Commits several tasks together, and returns their committed positions.

    If a step fails, no later step is done, so local state is never ahead of the commit. ``works_on`` is called with
    each session before its task flushes, and with None after the last flush, so that a runner knows which task runs.
    """
    transaction.begin()
    for session in sessions:
        works_on(session)
        session.task.flush()
    works_on(None)
    transaction.acknowledge()
    positions = _bounded({tp: at for session in sessions for tp, at in session.commit_positions().items()})
    # The ends are asked for before the commit. After the commit another process may own the task and write records that
    # this state does not have.
    ends = transaction.changelog_ends(
        [tp for session in sessions for tp in session.changelogs if tp not in positions]
    )
    transaction.commit(positions)
    for session in sessions:
        session.task.persist({tp: ends[tp] for tp in session.changelogs if tp in ends})
    return positions


def _bounded(positions: dict[TopicPartition, Position]) -> dict[TopicPartition, Position]:
    """The positions. If the metadata of all inputs exceeds `MOST_METADATA`, only some have the notes.

    The notes of one input tell of the whole task. So the inputs of the first topics have them, as far as there is room.
    """
    left = MOST_METADATA - sum(len(at.metadata) for at in positions.values())
    if left >= 0:
        return positions
    bounded = dict(positions)
    for tp, at in sorted(positions.items(), reverse=True):
        if left < 0:
            bounded[tp] = Position(at.offset, without_notes(at.metadata))
            left += len(at.metadata) - len(bounded[tp].metadata)
    return bounded
