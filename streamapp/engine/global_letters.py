"""Dead letters of records of global tables. Every process makes these letters, but only one process writes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from streamapp._base.letter_cycles import MAKES_LETTERS
from streamapp.engine.collector import NoWayOut, ResultRefused
from streamapp.engine.current_record import CurrentRecord
from streamapp.engine.judging import send_letter
from streamapp.errors import BrokerError
from streamapp.records import Headers, OutputRecord, TopicPartition, payload_bytes
from streamapp.topology.plan import Plan

__all__ = ["NO_WRITER", "GlobalLetters", "LetterCollector", "TakeLetter", "letter_cause", "makes_letters"]

MAX_BYTES = 16 * 1024 * 1024
"""The limit in bytes of the letters that wait in a process: keys, values and headers."""

NO_WRITER = (
    "the topology has global tables only, so no worker has the first task, which would write the dead letters of these "
    'tables. Give the tables on_error="skip" or "fail" and leave dead_letter_drops empty, or add a stream or a table '
    "to the topology"
)
"""The reason why a topology without tasks may have no dead letters, and the remedy."""

TakeLetter = Callable[[TopicPartition, int, OutputRecord], None]
"""Takes a letter. The arguments are the partition and the offset of its record in the global topic, and the letter."""


def makes_letters(plan: Plan) -> bool:
    """True if records of global topics can become dead letters.

    A function as answer can make letters for topics of its own, and `letter_cause` has the other causes.
    """
    return letter_cause(plan) is not None or any(map(callable, _answers(plan)))


def letter_cause(plan: Plan) -> str | None:
    """The setting by which records of global topics become dead letters. None: only a function makes them, if any.

    The ``on_error`` of a global table decides; without ``on_error``, the handlers for deserialization and processing
    decide. With ``dead_letter_drops``, records that a store drops become letters, too.
    """
    if not plan.global_stores or plan.config.dead_letter_queue_topic is None:
        return None
    if plan.config.dead_letter_drops:
        return f"dead_letter_drops is {plan.config.dead_letter_drops!r}"
    made = [answer for answer in _answers(plan) if answer in MAKES_LETTERS]
    return f'an on_error or an exception handler is "{made[0]}"' if made else None


def _answers(plan: Plan) -> list[object]:
    config = plan.config
    handlers = (config.deserialization_exception_handler, config.processing_exception_handler)
    return [
        answer
        for store in plan.global_stores
        for answer in (handlers if store.source.on_error is None else (store.source.on_error,))
    ]


class GlobalLetters:
    """The dead letters of global tables that one process has made and that are perhaps not written yet.

    Every process reads the global topics from their beginning, so every process makes each letter. Only one process
    writes letters: the one with the application's first task, usually ``0_0``. This writer commits the letters together
    with positions in the global topics, in the consumer group of the application. Each other process keeps a letter
    until it learns a committed position after the letter's record. If another process gets the first task, it reads the
    committed positions and writes the letters after them.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._waiting: dict[TopicPartition, deque[tuple[int, OutputRecord]]] = {}
        self._bytes = 0
        self.written: dict[TopicPartition, int] = {}
        """The committed positions of the group, by partition. All letters of records before a position are written."""

    def take(self, source: TopicPartition, offset: int, letter: OutputRecord) -> None:
        """Keeps a letter, unless the group's position shows that it is written already."""
        if offset >= self.written.get(source, 0):
            self._waiting.setdefault(source, deque()).append((offset, letter))
            self._bytes += _size(letter)

    def learn(self, written: Mapping[TopicPartition, int]) -> None:
        """Takes the positions that the group has committed, and drops the letters of earlier records, because these
        letters are written."""
        self.written = dict(written)
        for source, end in self.written.items():
            letters = self._waiting.get(source, deque())
            while letters and letters[0][0] < end:
                self._bytes -= _size(letters.popleft()[1])
        self._waiting = {source: letters for source, letters in self._waiting.items() if letters}

    @property
    def waiting(self) -> list[OutputRecord]:
        """The letters in the order of their records, by partition."""
        return [letter for letters in self._waiting.values() for _, letter in letters]

    def send(self, send: Callable[..., None], now_ms: int) -> None:
        """Sends the letters that wait, by a `Collector.send`. Raises `BrokerError` if brokers refuse a letter."""
        for letter in self.waiting:
            try:
                send_letter(send, letter, now_ms)
            except ResultRefused as refused:
                raise BrokerError(
                    f"{letter.topic} does not take a dead letter of a global table: {refused}. {refused.remedy}"
                ) from refused

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The positions to commit together with the letters that wait."""
        ends = {source: letters[-1][0] + 1 for source, letters in self._waiting.items()}
        return {**self.written, **ends}

    @property
    def full(self) -> bool:
        """True if the letters reach the limit. The process then reads no global record until letters are written."""
        return self._bytes >= self._max_bytes

    def __bool__(self) -> bool:
        return bool(self._waiting)


class LetterCollector(NoWayOut):
    """The `Collector` of a global store, which takes dead letters only: the processor of the store cannot send.

    A letter belongs to the current record of the task, ``record``. A letter that is sent without a current record is
    lost.
    """

    def __init__(self, take: TakeLetter) -> None:
        super().__init__("a global store's processor")
        self._take = take
        self.record: CurrentRecord | None = None

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        record = self.record
        if record is not None and record.topic is not None:
            letter = OutputRecord(topic, key, value, timestamp, headers, partition)
            self._take(TopicPartition(record.topic, record.partition), record.offset, letter)


def _size(letter: OutputRecord) -> int:
    return payload_bytes(letter.key, letter.value, letter.headers)
