"""The commit of a worker's tasks: the engine's `commit` over one Kafka transaction, and the steps around it.

The transaction has changelog records and offsets, and with exactly_once_v2 also the outputs. Brokers refuse the offsets
unless the worker is still the member of the group that received the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from streamapp._base import failpoints
from streamapp.broker.requests import LastingAdmin
from streamapp.config import StreamsConfig
from streamapp.engine.global_letters import GlobalLetters
from streamapp.engine.runner_ports import Position
from streamapp.engine.task_session import commit
from streamapp.errors import StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.purge import Purge
from streamapp.runners.worker.clients import brokers_answer, list_offsets
from streamapp.runners.worker.livetask import LiveTask, now_ms
from streamapp.runners.worker.membership import Member, Membership
from streamapp.runners.worker.producer import ChangelogRefused, ProductionError, RecordProducer

__all__ = ["Committer"]

logger: logging.Logger = logging.getLogger(__name__)

_METADATA_SECONDS = 10.0


class Committer:
    """Commits tasks in the transactions of the producer ``ledger``, which writes changelogs and offsets.

    The producer ``outputs`` writes results. With exactly_once_v2, both are the same producer, so the transactions
    contain the results. A topology that writes nothing has one producer, too. ``with_epoch`` adds the leader epoch of
    the last record to a position (`Fetcher.with_epoch`).
    """

    def __init__(
        self,
        config: StreamsConfig,
        admin: LastingAdmin,
        outputs: RecordProducer,
        ledger: RecordProducer,
        membership: Membership,
        with_epoch: Callable[[TopicPartition, Position], Position],
    ) -> None:
        self._admin = admin
        self._with_epoch = with_epoch
        self._outputs = outputs
        self._ledger = ledger
        self._membership = membership
        self._purge = Purge(admin, config.repartition_purge_interval_ms)
        self._committed: dict[TopicPartition, Position] = {}
        """The positions that this worker has committed since it received its tasks."""
        self.waits_for: str | None = None
        """The work for which brokers have to answer now, for example "a commit". Stays after a failure, until the next
        turn."""

    def open(self) -> None:
        """Ends the transaction that an earlier process with this state folder has left open.

        With exactly_once_v2, begins the first transaction.
        """
        self.waits_for = "the first transaction"
        self._ledger.open()
        self._begin_outputs()

    def poll(self) -> None:
        """Deletes records that no task reads again, if their purge is due. Raises the errors of `RecordProducer.poll`,
        for results."""
        self._purge.ask_if_due()
        self._outputs.poll()

    def send_now(self) -> None:
        """Sends waiting results at once. Does nothing with exactly_once_v2, where results are visible only later, after
        the commit."""
        if self._outputs is not self._ledger:
            self._outputs.send_now()

    @property
    def waits_for_room(self) -> bool:
        """True while a task or a commit waits for brokers, because a producer has no room for another record."""
        return self._outputs.waits_for_room or self._ledger.waits_for_room

    def abandon(self) -> None:
        """Ends the waits for brokers to acknowledge records, because the stop of the worker takes too long.

        No offsets are committed, so the next owner of the tasks processes the records again.
        """
        self._outputs.abandon()
        self._ledger.abandon()

    @property
    def unacknowledged_bytes(self) -> int:
        """The approximate bytes of outputs that brokers have not acknowledged. With exactly_once_v2, changelog records
        count, too."""
        return self._outputs.unacknowledged_bytes

    def commit(
        self,
        tasks: Sequence[LiveTask],
        member: Member,
        works_on: Callable[[LiveTask | None], None],
        letters: GlobalLetters | None = None,
    ) -> None:
        """Flushes and commits tasks. ``letters`` are the dead letters of global tables, written with the same commit.

        ``works_on`` is called with each task before its flush, and with None after the last flush. So the watchdog can
        name the task whose flush hangs.
        """
        ledger = _Ledger(
            self._admin, self._outputs, self._ledger, member, self._with_epoch, self._no_longer_waits, letters
        )
        self.waits_for = "a commit"
        try:
            positions = commit(tasks, ledger, works_on)
        except ChangelogRefused as exc:
            raise self._naming_records(exc, tasks) from exc
        failpoints.hit("state-persisted")
        for live in tasks:
            processed = {tp: positions[tp].offset for tp in live.repartitioned if tp in positions}
            self._purge.note(processed | live.task.needless_changes)
        self._begin_outputs()
        self._committed.update(ledger.positions)

    def _no_longer_waits(self) -> None:
        self.waits_for = None

    def roll_back(self) -> None:
        """Rolls back all work since the last commit."""
        self.waits_for = "a rollback"
        self._ledger.roll_back()
        if self._outputs is not self._ledger:
            self._outputs.roll_back()
        self._begin_outputs()

    def follow_files(self) -> None:
        """Opens new producers if certificate files have changed.

        A new producer aborts the open transaction, so call the method only when all processed records are committed. A
        producer whose records wait for acknowledgements stays until a later call.
        """
        if self._ledger.follow_files():
            self._begin_outputs()
        if self._outputs is not self._ledger:
            self._outputs.follow_files()

    def write_metadata(self, member: Member | None) -> None:
        """Commits the worker's last offsets once more, outside a transaction, before a rebalance or a stop takes the
        tasks away.

        Without streamapp's library in C, offsets of a transaction go through confluent-kafka, which ends their metadata
        with a NUL byte. Kafka Streams cannot read this metadata, so the second commit writes the metadata without the
        byte. If the second commit fails, an application that moves to Kafka Streams loses its stream times.
        """
        positions, self._committed = self._committed, {}
        if positions and member is not None:
            try:
                self._membership.commit(member, positions, _METADATA_SECONDS)
            except StreamsError as exc:
                logger.warning("stream times could not be written for Kafka Streams: %s", exc)

    def forget(self) -> None:
        """Forgets the committed positions and refused results, because the tasks may belong to other workers now."""
        self._committed.clear()
        self._outputs.forget_refusals()

    def forget_purge(self) -> None:
        """Forgets which records no task reads again, because the group was without this worker for a while."""
        self._purge.forget()

    def close(self) -> None:
        self._ledger.close()
        self._outputs.close()

    def _begin_outputs(self) -> None:
        if self._outputs is self._ledger:
            self._ledger.begin()

    def _naming_records(self, refused: ChangelogRefused, tasks: Sequence[LiveTask]) -> ProductionError:
        """The error with the records that its task has processed since the last commit.

        Usually one of them made the change. Which one is not known, because a changelog gets only the last value of
        each key.
        """
        for live in tasks:
            if refused.changelog in live.changelogs:
                began = live.starts | {tp: position.offset for tp, position in self._committed.items()}
                read = ", ".join(
                    f"{tp} at offsets {began[tp]} to {end - 1}" for tp, end in live.task.positions.items()
                )
                return ProductionError(f"task {live.id}, after records of {read}: {refused}")
        return refused


class _Ledger:
    """The engine's `Transaction`, as one Kafka transaction."""

    def __init__(
        self,
        admin: LastingAdmin,
        outputs: RecordProducer,
        ledger: RecordProducer,
        member: Member,
        with_epoch: Callable[[TopicPartition, Position], Position],
        committed: Callable[[], None],
        letters: GlobalLetters | None,
    ) -> None:
        self._admin, self._outputs, self._ledger = admin, outputs, ledger
        self._member, self._committed = member, committed
        self._with_epoch = with_epoch
        self.positions: dict[TopicPartition, Position] = {}
        """The positions of the tasks' inputs in the commit."""
        self._letters = letters or GlobalLetters()

    def begin(self) -> None:
        """Sends the dead letters of global tables, and begins the transaction.

        With at_least_once, first waits until brokers have all outputs, because the wait could exceed the time-out of an
        open transaction. With exactly_once_v2, the transaction is open already.
        """
        self._letters.send(self._outputs.send, now_ms())
        if self._outputs is not self._ledger:
            self._outputs.flush()
            self._ledger.begin()

    def acknowledge(self) -> None:
        failpoints.hit("state-flushed")
        self._outputs.flush()
        if self._outputs is not self._ledger:
            self._ledger.flush()
        failpoints.hit("outputs-acknowledged")

    def changelog_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of changelogs that have leaders. A table may have its rows in an input without a leader, and other
        tasks go on."""
        return list_offsets(self._admin, partitions, latest=True, leaderless=set())

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        written = {tp: Position(offset) for tp, offset in self._letters.positions.items()}
        self.positions = {tp: self._with_epoch(tp, position) for tp, position in positions.items()}
        self._ledger.commit(
            {**self.positions, **written},
            self._member,
            lambda: failpoints.hit("offsets-sent"),
            lambda: brokers_answer(self._admin),
        )
        failpoints.hit("offsets-committed")
        self._committed()
        self._outputs.committed()
