"""Agents notice a new leader that lacks the records before their position, although aiokafka knows no leader epochs."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import KafkaError

from streamapp.broker.consumer import ConsumerEvent
from streamapp.broker.lasting_consumer import LastingConsumer
from streamapp.broker.leader_epochs import LeaderEpochs, ReadEnd
from streamapp.config import StreamsConfig
from streamapp.errors import StreamsError, TaskCorruptedError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.worker import kept_records
from streamapp.runners.worker.agents.read_epochs import watch_epochs
from streamapp.runners.worker.kept_records import check_read_records

from ..broker.test_consumer import MockKafka, cut_off

DELAYS, OTHER = TopicPartition("delays", 0), TopicPartition("rows", 0)


def batch(first: int, count: int, epoch: int) -> bytes:
    """A batch of records, as brokers send it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=999,
    )
    for number in range(count):
        builder.append(number, 1, b"k", b"v", [])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, first)
    struct.pack_into(">i", data, 12, epoch)
    return bytes(data)


class Client:
    """A client of aiokafka whose fetches give one answer after the other: records, or the code of an error."""

    def __init__(self, *answers: bytes | int | None) -> None:
        self.answers = list(answers)

    async def send(self, node: int, request: Any) -> Any:
        answer = self.answers.pop(0)
        rows = [(0, answer, 99, 99, [], b"") if isinstance(answer, int) else (0, 0, 99, 99, [], answer)]
        return SimpleNamespace(topics=[(topic, rows) for topic, _ in request.topics])


class Leader:
    """The consumer that compares the last record with the log of the leader."""

    def __init__(self, error: KafkaError | None) -> None:
        self.error = error
        self.asked: list[Any] = []

    def assign(self, *started: Any) -> None:
        self.asked.append(started)

    def poll(self, most: int, timeout: float) -> Any:
        if self.error is not None:
            return [], [ConsumerEvent(DELAYS, -1, self.error)]
        return [(DELAYS, RecordBatch([b"k"], [b"v"], [1], [20]))], []

    def remove(self, partitions: Any) -> None: ...

    def take_lost(self) -> bool:
        return False

    def close(self) -> None: ...


def fetch(topic: str, position: int) -> FetchRequest:
    return FetchRequest(1, 1, 1, 1, [(topic, [(0, position, 1)])])


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("answer", [batch(12, 3, 2), OffsetOutOfRangeError.errno])
def test_records_of_a_later_epoch_are_compared_with_the_record_before(
    monkeypatch: pytest.MonkeyPatch, lost: bool, answer: bytes | int
) -> None:
    """After an unclean leader election, agents passed over the new records before their position."""
    leader = Leader(cut_off(12, 8) if lost else None)
    monkeypatch.setattr(
        kept_records,
        "open_consumer",
        lambda settings: LastingConsumer(lambda: leader),  # type: ignore[arg-type, return-value]
    )
    first = batch(4, 6, 1) + batch(10, 2, 1)  # the last batch may be cut off: its head tells enough
    client = Client(first[:-20], None, answer, batch(15, 1, 2), batch(7, 1, 5))
    epochs, refused = LeaderEpochs(), []
    ended = asyncio.Event()

    def refuse(error: StreamsError) -> None:
        refused.append(error)
        ended.set()

    async def run() -> None:
        watch_epochs(client, StreamsConfig("seen"), epochs, lambda tp: tp == DELAYS, refuse)
        await client.send(1, fetch("delays", 4))
        await client.send(1, fetch("delays", 12))
        assert epochs.before(DELAYS, 12) == ReadEnd(12, 1)
        assert leader.asked == []
        going = asyncio.create_task(client.send(1, fetch("delays", 12)))
        stop = asyncio.create_task(ended.wait())
        await asyncio.wait([going, stop], return_when=asyncio.FIRST_COMPLETED, timeout=60)
        assert leader.asked == [({DELAYS: 12}, {DELAYS: 1})]
        assert going.done() is not lost
        going.cancel()
        stop.cancel()
        if not lost:
            if isinstance(answer, bytes):
                assert epochs.before(DELAYS, 14) == ReadEnd(14, 2)
            await client.send(1, fetch("delays", 15))
            assert len(leader.asked) == (
                1 if isinstance(answer, bytes) else 2
            )  # the same epoch: nothing to ask
            await client.send(1, fetch("rows", 7))  # a topic of the topology
            assert epochs.before(OTHER, 8) is None

    asyncio.run(run())
    assert [str(error).partition(",")[0] for error in refused] == (
        ["delays-0 has lost the records from offset 8 on"] if lost else []
    )
    assert epochs.before(DELAYS, 12) == ReadEnd(12, 1)  # what a last commit names


def test_only_a_log_without_the_record_is_refused() -> None:
    broker = MockKafka()
    for number in range(6):
        broker.write(number % 2, b"UA", b"%d" % number, 1000)
    config = StreamsConfig("seen", bootstrap_servers=broker.settings["bootstrap.servers"])
    check_read_records(config, {DELAYS: ReadEnd(3, 0), TopicPartition("delays", 1): ReadEnd(2, 0)})
    check_read_records(config, {DELAYS: ReadEnd(2, 0)})
    with pytest.raises(
        TaskCorruptedError, match="from offset 3 on, of which seen has read those to offset 8"
    ):
        check_read_records(config, {DELAYS: ReadEnd(9, 0)})
