"""The commit of a worker's tasks: the engine's `commit` over one Kafka transaction, and all that belongs around it.

Changelog records and offsets (with exactly_once_v2 the outputs too) are committed in one transaction, by the member of the
group that the work was given to.
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
from streamapp.runners.worker.clients import PATIENCE_SECONDS, brokers_answer, list_offsets
from streamapp.runners.worker.livetask import LiveTask
from streamapp.runners.worker.membership import Member, Membership
from streamapp.runners.worker.producer import ChangelogRefused, ProductionError, RecordProducer
from streamapp.runners.worker.purge import RepartitionPurge

__all__ = ["Committer"]

logger: logging.Logger = logging.getLogger(__name__)

_METADATA_SECONDS = 10.0


class Committer:
    """``ledger`` is the producer whose transactions are the commits; with exactly_once_v2 ``outputs`` is the same one.
    Once ``abandoned`` says so, brokers are no longer waited for."""

    def __init__(
        self,
        config: StreamsConfig,
        admin: LastingAdmin,
        outputs: RecordProducer,
        ledger: RecordProducer,
        membership: Membership,
        abandoned: Callable[[], bool],
    ) -> None:
        self._admin = admin
        self._outputs = outputs
        self._ledger = ledger
        self._membership = membership
        self._abandoned = abandoned
        self._purge = RepartitionPurge(admin, config.repartition_purge_interval_ms)
        self._committed: dict[TopicPartition, Position] = {}
        """What was committed since this worker was given its tasks."""
        self.waits: bool = False
        """Brokers have to answer. Stays so when a commit fails, until that is dealt with."""

    def open(self) -> None:
        """Ends what an earlier process has left open, and begins."""
        self._ledger.open()
        self._begin_outputs()

    def poll(self) -> None:
        """Raises what has become of the outputs."""
        self._outputs.poll()

    def send_now(self) -> None:
        """Outputs that can be read at once are sent at once; those of a transaction can be read when it is committed."""
        if self._outputs is not self._ledger:
            self._outputs.send_now()

    @property
    def unacknowledged_bytes(self) -> int:
        """About so many bytes are on their way."""
        return self._outputs.unacknowledged_bytes

    def commit(
        self,
        tasks: Sequence[LiveTask],
        member: Member,
        works_on: Callable[[LiveTask | None], None],
        letters: GlobalLetters | None = None,
    ) -> None:
        """Flushes and commits tasks; ``works_on`` hears which task flushes. ``letters`` are written with them."""
        ledger = _Ledger(
            self._admin, self._outputs, self._ledger, member, self._abandoned, self._no_longer_waits, letters
        )
        self.waits = True
        try:
            positions = commit(tasks, ledger, works_on)
        except ChangelogRefused as exc:
            raise self._naming_records(exc, tasks) from exc
        failpoints.hit("state-persisted")
        self._purge.committed(
            {tp: positions[tp].offset for live in tasks for tp in live.repartitioned if tp in positions}
        )
        self._begin_outputs()
        self._committed.update(positions)

    def _no_longer_waits(self) -> None:
        self.waits = False

    def roll_back(self) -> None:
        """What was not committed is taken back. Until the next turn the worker waits for brokers."""
        self.waits = True
        self._ledger.roll_back()
        if self._outputs is not self._ledger:
            self._outputs.roll_back()
        self._begin_outputs()

    def follow_files(self) -> None:
        """Nothing was processed since the last commit: new certificates have their chance."""
        if self._ledger.follow_files():
            self._begin_outputs()
        if self._outputs is not self._ledger:
            self._outputs.accepted()

    def write_metadata(self, member: Member | None) -> None:
        """Commits the same offsets once more, as the member and outside a transaction, before others go on from them.

        confluent-kafka, which workers without the library in C send with, ends metadata with a NUL, and Kafka Streams reads no
        metadata that is followed by anything. What of this fails, costs an application that Java takes over its stream times, and nobody anything else.
        """
        positions, self._committed = self._committed, {}
        if positions and member is not None:
            try:
                self._membership.commit(member, positions, _METADATA_SECONDS)
            except StreamsError as exc:
                logger.warning("stream times could not be written for Kafka Streams: %s", exc)

    def forget(self) -> None:
        """From now on others may be further than what was committed."""
        self._committed.clear()

    def close(self) -> None:
        self._ledger.close()
        self._outputs.close()

    def _begin_outputs(self) -> None:
        if self._outputs is self._ledger:
            self._ledger.begin()

    def _naming_records(self, refused: ChangelogRefused, tasks: Sequence[LiveTask]) -> ProductionError:
        """The change is of one of several records: the changelog gets the last value of each key."""
        for live in tasks:
            if refused.changelog in live.changelogs:
                began = live.starts | {tp: position.offset for tp, position in self._committed.items()}
                read = ", ".join(
                    f"{tp} at offsets {began[tp]} to {end - 1}" for tp, end in live.task.positions.items()
                )
                return ProductionError(f"task {live.id}, after records of {read}: {refused}")
        return refused


class _Ledger:
    """The engine's `Transaction`: one Kafka transaction with changelog records and offsets, and with exactly_once_v2 the
    outputs."""

    def __init__(
        self,
        admin: LastingAdmin,
        outputs: RecordProducer,
        ledger: RecordProducer,
        member: Member,
        abandoned: Callable[[], bool],
        committed: Callable[[], None],
        letters: GlobalLetters | None,
    ) -> None:
        self._admin, self._outputs, self._ledger = admin, outputs, ledger
        self._member, self._abandoned, self._committed = member, abandoned, committed
        self._letters = letters or GlobalLetters()

    def begin(self) -> None:
        """Waits for earlier outputs first, if they have no part in the transaction: a transaction has no time for them."""
        for letter in self._letters.waiting:
            self._outputs.send(*letter)
        if self._outputs is not self._ledger:
            self._outputs.flush(PATIENCE_SECONDS, self._abandoned)
            self._ledger.begin()

    def acknowledge(self) -> None:
        failpoints.hit("state-flushed")
        self._outputs.flush(PATIENCE_SECONDS, self._abandoned)
        if self._outputs is not self._ledger:
            self._ledger.flush(PATIENCE_SECONDS, self._abandoned)
        failpoints.hit("outputs-acknowledged")

    def changelog_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return list_offsets(self._admin, partitions, latest=True)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        written = {tp: Position(offset) for tp, offset in self._letters.positions.items()}
        self._ledger.commit(
            {**positions, **written},
            self._member,
            lambda: failpoints.hit("offsets-sent"),
            lambda: brokers_answer(self._admin),
        )
        failpoints.hit("offsets-committed")
        self._committed()
        self._outputs.accepted()
