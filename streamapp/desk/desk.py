"""`FailureDesk`: the dead letters of one application on its cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import Consumer

from streamapp._base.counted import counted
from streamapp.broker.admin import KafkaAdmin
from streamapp.broker.bounded_reads import TO_THE_END, read_to_end
from streamapp.broker.librdkafka import opening
from streamapp.config import StreamsConfig
from streamapp.desk.desk_transactions import DeskTransactions, LettersRefused, Row
from streamapp.desk.filters import select
from streamapp.desk.letter_texts import LetterTexts
from streamapp.desk.letters import Letter, check_id
from streamapp.desk.marks import Marks, marks_topic
from streamapp.desk.readers import Reader
from streamapp.errors import BrokerError, ConfigError, StreamsError
from streamapp.records import Headers, OutputRecord, TopicPartition
from streamapp.runners.connection import client_of, settings_of

__all__ = ["FailureDesk", "read_record"]

_BATCH = 500
"""The largest number of dead letters in one transaction."""
_BATCH_BYTES = 8 * 2**20
"""The most bytes of keys and values in one transaction with several letters. They wait in memory for the commit."""
_PATIENCE_SECONDS = 30.0


class FailureDesk:
    """Reads the dead letters of an application, and replays, edits and discards them. ``matches`` of a method is a
    function that selects letters, for example `LetterFilter.matches`. ``named`` are the ids that a user has given. A
    change raises `StreamsError`, and writes nothing, if `select` refuses these ids. ``readers`` are the parts of the
    application that read topics; their serdes decode the letters.

    Only one desk of a dead-letter topic writes at a time. When a second desk begins to write, brokers refuse the
    transactions of the first desk. Raises `ConfigError` for an application without a dead-letter topic, and
    `BrokerError` if a request to a broker fails.
    """

    def __init__(
        self,
        config: StreamsConfig,
        readers: Sequence[Reader] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if config.dead_letter_queue_topic is None:
            raise ConfigError(
                f"{config.application_id} keeps no dead letters: set dead_letter_queue_topic in its configuration"
            )
        self.topic: str = config.dead_letter_queue_topic
        self._marks_topic = marks_topic(self.topic)
        self._config, self._clock = config, clock
        self.texts: LetterTexts = LetterTexts(config, readers)
        """Makes texts of keys and values, and bytes of the texts that a user gives."""

    # ------------------------------------------------------------------ reading

    def scan(self) -> tuple[Iterator[Letter], Marks]:
        """All letters, ordered by partition and offset, and the marks, which tell the state of each letter. An edited
        letter has its new key and value.

        The iterator reads the topic, and keeps no letter. A storm of errors may leave more letters than fit into the
        memory of a worker.
        """
        marks = self._read_marks()
        return self._edited(marks, _read(self._config, _offsets(self._config, self.topic))), marks

    def letter(self, id: str) -> tuple[Letter, Marks]:
        """The letter with this id, and the marks of all letters. Raises `StreamsError` if no letter has the id."""
        partition, offset = check_id(id)
        marks = self._read_marks()
        try:
            record = read_record(self._config, self.topic, partition, offset)
        except BrokerError:
            raise
        except StreamsError as error:
            raise StreamsError(f"there is no letter {id}: {error}") from error
        return next(self._edited(marks, iter([record]))), marks

    def whole(self, letter: Letter) -> Letter:
        """The letter with the key and value of its record.

        A letter lacks key and value if its record waited in a buffer or record cache before it failed. The desk then
        reads both from the source topic. Raises `StreamsError` if the topic does not have the record any more.
        """
        if not letter.lacks_record:
            return letter
        try:
            if letter.place is None:
                raise StreamsError(f"the letter says {letter.origin}, which is no place of a record")
            record = read_record(self._config, *letter.place)
        except StreamsError as error:
            raise StreamsError(
                f"letter {letter.id} has no record, because the record had waited in a buffer, and its source "
                f"cannot be read: {error}. Give the letter a record with edit, or discard the letter"
            ) from error
        return replace(letter, key=record.key, value=record.value)

    def _edited(self, marks: Marks, letters: Iterator[Letter]) -> Iterator[Letter]:
        for letter in letters:
            edit = marks.edit_of(letter.id)
            yield letter if edit is None else letter.with_record(*edit)

    def _read_marks(self) -> Marks:
        admin = KafkaAdmin(settings_of(self._config))
        found = admin.partition_counts([self.topic, self._marks_topic])
        marks = Marks()
        if self.topic in found:
            marks.topic_id = admin.topic_id(self.topic)
        if self._marks_topic in found:
            for record in _read(self._config, _offsets(self._config, self._marks_topic)):
                marks.apply(record.key, record.value)
        return marks

    # ------------------------------------------------------------------ writing

    def replay(
        self,
        matches: Callable[[Letter], bool],
        *,
        named: Collection[str] = (),
        force: bool = False,
        only_group: bool = False,
        rate: float | None = None,
        progress: Callable[[int], None] = lambda written: None,
        wait: Callable[[float], object] = time.sleep,
    ) -> int:
        """Writes the records of matching open letters to the topics from which they came; returns their number.

        The records of a key keep their order. ``rate`` is the largest number of records per second. With ``force``,
        letters that were replayed or discarded are replayed, too. With ``only_group``, a consumer of streamapp passes
        over a record if the letter belongs to another consumer group; topologies and agents do not. ``progress`` is
        called after each transaction, with the number of records so far. ``wait`` is called between two transactions,
        with the seconds of the pause. An exception of ``wait`` ends the replay, and the other letters stay open. A
        record and the mark "replayed" of its letter are in one transaction, so a crash neither loses nor repeats a
        replay.

        Raises `StreamsError`, and writes nothing, if one of the letters has no source topic or this topic is gone. The
        same holds for a letter whose record cannot be read any more (`whole`). With ``only_group``, it also holds for a
        letter without a group, and for a compacted topic. If letters are deleted from the dead-letter topic meanwhile,
        the method replays the other letters, and then raises `StreamsError`. If brokers refuse a record, the method
        raises `BrokerError`. The letter of the record and all letters after it then stay open.
        """
        course = _Course()
        while True:
            try:
                self._replay(
                    matches, () if course.written else named, force, only_group, rate, progress, wait, course
                )
                return course.written
            except LettersRefused as refused:
                # Brokers refuse a request as a whole, perhaps only for its size: each of the letters goes alone.
                if len(refused.letters) == 1:
                    raise
                course.alone |= refused.letters

    def dry_run(
        self,
        matches: Callable[[Letter], bool],
        *,
        named: Collection[str] = (),
        force: bool = False,
        only_group: bool = False,
    ) -> Iterator[tuple[Letter, OutputRecord]]:
        """The letters that `replay` would replay with these arguments, and their records. Writes nothing. Raises the
        errors that `replay` raises before it writes."""
        marks, left = self._read_marks(), _offsets(self._config, self.topic)
        _, _, chosen = self._choose(marks, left, matches, named, force, only_group)
        for letter in chosen:
            whole = self.whole(letter)
            yield whole, whole.replayed(self.topic, only_group)

    def _replay(
        self,
        matches: Callable[[Letter], bool],
        named: Collection[str],
        force: bool,
        only_group: bool,
        rate: float | None,
        progress: Callable[[int], None],
        wait: Callable[[float], object],
        course: _Course,
    ) -> None:
        """Replays the letters that are left of ``course``, and notes in ``course`` which letters are replayed."""
        with DeskTransactions(self._config, self.topic, self._marks_topic) as transactions:
            marks = self._read_marks()  # after `DeskTransactions` has fenced earlier desks
            left = _offsets(self._config, self.topic) if course.left is None else course.left
            count, course.left, chosen = self._choose(marks, left, matches, named, force, only_group)
            most = _BATCH if rate is None else max(1, min(_BATCH, round(rate)))
            done, began, pause = 0, 0.0, 0.0
            for batch in self._batches(chosen, most, course.alone, only_group):
                if done:
                    wait(max(0.0, pause - (self._clock() - began)))
                began, pause = self._clock(), len(batch) / rate if rate else 0.0
                rows = [Row(letter.id, record) for letter, record in batch]
                rows += [
                    self._mark(letter.id, marks.marked(letter.id, "replayed", self._now()))
                    for letter, _ in batch
                ]
                transactions.write(rows)
                done += len(batch)
                course.note([letter for letter, _ in batch])
                progress(course.written)
        if done < count:
            raise StreamsError(
                f"{self.topic} has lost {counted(count - done, 'letter')} before the replay, and the replay has "
                f"written {counted(course.written, 'letter')}. The topic needs a longer retention"
            )

    def _choose(
        self,
        marks: Marks,
        left: Mapping[TopicPartition, range],
        matches: Callable[[Letter], bool],
        named: Collection[str],
        force: bool,
        only_group: bool,
    ) -> tuple[int, dict[TopicPartition, range], Iterator[Letter]]:
        """Checks the letters to replay; returns their number, their offsets, and an iterator over them.

        Reads the topic twice, because all letters do not fit into memory: first to check the letters, then for the
        iterator.
        """
        letters = self._edited(marks, _read(self._config, left))
        count, checked = self._check(select(letters, marks, matches, named, force=force), left, only_group)
        letters = self._edited(marks, _read(self._config, dict(checked)))
        return count, checked, select(letters, marks, matches, force=force)

    def _check(
        self, letters: Iterator[Letter], offsets: Mapping[TopicPartition, range], only_group: bool
    ) -> tuple[int, dict[TopicPartition, range]]:
        """The number of letters, and the offsets up to the last letter of each partition. Raises `StreamsError` if a
        letter cannot be replayed."""
        count, targets, ends = 0, dict[str, int](), dict[TopicPartition, int]()
        for letter in letters:
            record = self.whole(letter).replayed(self.topic, only_group)
            targets[record.topic] = max(targets.get(record.topic, 0), (record.partition or 0) + 1)
            ends[TopicPartition(self.topic, letter.partition)] = letter.offset + 1
            count += 1
        self._check_targets(targets, only_group)
        return count, {tp: range(offsets[tp].start, end) for tp, end in ends.items()}

    def _batches(
        self, letters: Iterator[Letter], most: int, alone: Collection[str], only_group: bool
    ) -> Iterator[list[tuple[Letter, OutputRecord]]]:
        """Letters and their records, for one transaction each. A letter of ``alone`` has a transaction of its own."""
        batch, size = list[tuple[Letter, OutputRecord]](), 0
        for letter in letters:
            single = letter.id in alone
            whole = self.whole(letter)
            record = whole.replayed(self.topic, only_group)
            own = len(record.key or b"") + len(record.value or b"")
            if batch and (single or len(batch) == most or size + own > _BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append((whole, record))
            size += own
            if single:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def discard(
        self, matches: Callable[[Letter], bool], why: str = "", *, named: Collection[str] = ()
    ) -> int:
        """Marks matching open letters as discarded; returns their number. The letters stay in their topic."""
        with DeskTransactions(self._config, self.topic, self._marks_topic) as transactions:
            letters, marks = self.scan()
            chosen = [each.id for each in select(letters, marks, matches, named)]
            transactions.write(
                [self._mark(each, marks.marked(each, "discarded", self._now(), why)) for each in chosen]
            )
            return len(chosen)

    def edit(self, id: str, key: bytes | None, value: bytes | None) -> None:
        """Gives a letter another key and value for its replay. A discarded letter is open again.

        The dead-letter topic keeps the original letter. Raises `StreamsError` for a letter that was replayed.
        """
        with DeskTransactions(self._config, self.topic, self._marks_topic) as transactions:
            _, marks = self.letter(id)
            if marks.state(id) == "replayed":
                raise StreamsError(
                    f"letter {id} was replayed already: an edit has no effect any more. Edit letters before a replay"
                )
            transactions.write([self._mark(id, marks.edited(id, key, value, self._now()))])

    def _mark(self, letter: str, mark: bytes) -> Row:
        return Row(letter, OutputRecord(self._marks_topic, letter.encode(), mark, self._now()))

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _check_targets(self, targets: Mapping[str, int], only_group: bool) -> None:
        """Raises `StreamsError` if records cannot go back to their topics. ``targets`` has the number of partitions
        that each topic needs."""
        admin = KafkaAdmin(settings_of(self._config))
        found = admin.partition_counts(targets)
        missing = targets.keys() - found.keys()
        if missing:
            raise StreamsError(
                f"letters came from topics that do not exist any more: {', '.join(sorted(missing))}. Create these "
                "topics, or discard the letters"
            )
        for topic, needed in sorted(targets.items()):
            if found[topic] < needed:
                raise StreamsError(
                    f"letters came from partition {needed - 1} of {topic}, which now has "
                    f"{counted(found[topic], 'partition')}. Give the topic its former number of partitions, or discard "
                    "the letters"
                )
        for topic in sorted(targets) if only_group else ():
            if "compact" in (admin.topic_config(topic).get("cleanup.policy") or ""):
                raise StreamsError(
                    f"{topic} is compacted: a record for one consumer group would replace the record of its key for "
                    "all groups. Replay the letters of this topic for all readers"
                )


@dataclass
class _Course:
    """The course of a replay from one refusal to the next."""

    left: dict[TopicPartition, range] | None = None
    """The offsets whose letters are still to be replayed. None before the first look at the letters."""
    written: int = 0
    alone: set[str] = field(default_factory=set)
    """Ids of letters that need a transaction of their own."""

    def note(self, letters: Sequence[Letter]) -> None:
        """Counts letters that are replayed, and leaves them and all letters before them out from now on."""
        assert self.left is not None
        self.written += len(letters)
        last = letters[-1]
        for tp, span in self.left.items():
            if tp.partition < last.partition:
                self.left[tp] = range(0)
            elif tp.partition == last.partition:
                self.left[tp] = range(last.offset + 1, span.stop)


def read_record(config: StreamsConfig, topic: str, partition: int, offset: int) -> Letter:
    """One committed record of a topic, as a `Letter`. Raises `StreamsError` if the offset has no committed record."""
    admin, tp = KafkaAdmin(settings_of(config)), TopicPartition(topic, partition)
    if partition >= admin.partition_counts([topic]).get(topic, 0):
        raise StreamsError(f"there is no partition {tp}")
    low, high = admin.log_start_offsets([tp])[tp], admin.log_end_offsets([tp])[tp]
    if not low <= offset < high:
        held = f"its records are from {low} to {high - 1}" if low < high else "it has no records"
        raise StreamsError(f"{tp} has no offset {offset}: {held}")
    with _consumer(config) as consumer:
        message = next(read_to_end(consumer, {tp: offset}, _PATIENCE_SECONDS, {tp: offset + 1}), None)
    if message is None:
        raise StreamsError(
            f"{tp} has no record at offset {offset}: compaction removed the record, its "
            "transaction was rolled back, or the offset is the marker of a transaction"
        )
    return _letter(message)


def _offsets(config: StreamsConfig, topic: str) -> dict[TopicPartition, range]:
    """The offsets of all partitions of a topic, at this moment. Raises `StreamsError` if there is no such topic."""
    admin = KafkaAdmin(settings_of(config))
    count = admin.partition_counts([topic]).get(topic)
    if count is None:
        admin.check_shown(topic)
        raise StreamsError(
            f"there is no topic {topic} at {settings_of(config).bootstrap_servers}. Check dead_letter_queue_topic and "
            "the address"
        )
    partitions = [TopicPartition(topic, number) for number in range(count)]
    starts, ends = admin.log_start_offsets(partitions), admin.log_end_offsets(partitions)
    return {tp: range(starts[tp], ends[tp]) for tp in partitions}


def _read(config: StreamsConfig, offsets: Mapping[TopicPartition, range]) -> Iterator[Letter]:
    """All committed records at these offsets, by partition."""
    for tp, span in offsets.items():
        if span:
            with _consumer(config) as consumer:
                yield from map(
                    _letter, read_to_end(consumer, {tp: span.start}, _PATIENCE_SECONDS, {tp: span.stop})
                )


def _consumer(config: StreamsConfig) -> closing[Consumer]:
    with opening(client_of(config)) as current:
        return closing(
            Consumer(
                {
                    **current,
                    "group.id": f"{config.application_id}-desk",
                    **TO_THE_END,
                    # The records at the position may be deleted during a slow replay.
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "queued.max.messages.kbytes": 4_096,  # a worker has the memory for this queue, too
                }
            )
        )


def _letter(message: Any) -> Letter:
    headers: Headers = tuple((name, value) for name, value in message.headers() or ())
    return Letter(
        message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value(), headers
    )
