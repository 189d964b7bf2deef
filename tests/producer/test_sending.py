"""Both producers on a broker that is there: reports, partitions, bounds, accounts, transactions."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka import Producer

from streamapp import BrokerError, ConfigError, JsonSerde, SerializationError, StringSerde, TopologyError
from streamapp._base.partitioning import partition_for
from streamapp.broker import KafkaAdmin, KafkaSettings
from streamapp.broker.requests import LastingAdmin
from streamapp.errors import StreamsError
from streamapp.producer import (
    BufferFull,
    DeliveryError,
    DeliveryReport,
    ProducerMetrics,
    ReliableProducer,
    SyncReliableProducer,
    UnsentRecords,
    partition_counts,
    session,
)
from streamapp.producer.buffer import Claim
from streamapp.registry.rest import RegistryAway
from streamapp.serdes import AvroSerde, ListSerde, LocalSchemaRegistry
from streamapp.serdes.schema_registry import SchemaFormat, SchemaVersion

from ..processes import until
from .topics import PARTITIONS, Topics

NOWHERE = "127.0.0.1:9"
WAYS: list[dict[str, Any]] = [{}, {"transactions": True}, {"spill_dir": "spill"}]
ways = pytest.mark.parametrize("way", WAYS, ids=["idempotent", "transactions", "spill"])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def adds_up(metrics: ProducerMetrics) -> bool:
    return (
        metrics.events == metrics.confirmed + metrics.unconfirmed + metrics.failed
        and metrics.spilled <= metrics.unconfirmed
    )


@ways
async def test_a_report_says_where_the_record_is(topics: Topics, way: dict[str, Any]) -> None:
    topic = topics.create()
    async with ReliableProducer(
        "orders-service",
        key_serde=StringSerde(),
        value_serde=JsonSerde(),
        bootstrap_servers=topics.bootstrap,
        **way,
    ) as producer:
        first = await producer.send(topic, key="o1", value={"paid": True})
        second = await producer.send_soon(topic, key="o1", value=None)
    partition = partition_for(b"o1", PARTITIONS)
    assert (first.topic, first.partition, first.offset, first.spilled) == (topic, partition, 0, False)
    # A marker ends each transaction.
    assert (second.partition, second.offset) == (partition, 2 if way else 1)
    assert topics.read(topic)[partition] == [(b"o1", b'{"paid":true}'), (b"o1", None)]
    assert producer.metrics.confirmed == 2


@ways
def test_threads_send_in_order_to_javas_partitions(topics: Topics, way: dict[str, Any]) -> None:
    topic = topics.create()
    with SyncReliableProducer(
        "orders-service", key_serde=StringSerde(), bootstrap_servers=topics.bootstrap, **way
    ) as producer:

        def send(thread: int) -> None:
            for number in range(500):
                producer.send_soon(topic, key=f"{thread}-{number % 7}", value=b"%d" % number)
                assert adds_up(producer.metrics)

        threads = [threading.Thread(target=send, args=(each,)) for each in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert producer.flush(60_000)
        assert (producer.metrics.events, producer.metrics.confirmed) == (2_000, 2_000)
    by_key: dict[bytes, list[int]] = {}
    for partition, rows in topics.read(topic).items():
        for key, value in rows:
            assert key is not None
            assert value is not None
            assert partition == partition_for(key, PARTITIONS)
            by_key.setdefault(key, []).append(int(value))
    assert sum(map(len, by_key.values())) == 2_000
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


async def test_a_record_chooses_its_partition(topics: Topics) -> None:
    topic = topics.create()
    async with ReliableProducer("orders", bootstrap_servers=topics.bootstrap) as producer:
        assert (await producer.send(topic, key=b"o1", value=b"v", partition=2)).partition == 2


@ways
async def test_a_partitioner_of_ones_own_knows_the_partitions(topics: Topics, way: dict[str, Any]) -> None:
    topic = topics.create()
    async with ReliableProducer("orders", bootstrap_servers=topics.bootstrap, **way) as producer:
        assert await producer.partition_count(topic) == PARTITIONS
        for shop in range(7):
            partition = shop % await producer.partition_count(topic)
            assert (
                await producer.send(topic, value=b"%d" % shop, partition=partition)
            ).partition == partition
        with pytest.raises(BrokerError, match="nowhere does not exist: create it"):
            await producer.partition_count("nowhere")
        with pytest.raises(TopologyError, match="the topic"):
            await producer.partition_count("no topic")
    assert [value for _, value in topics.read(topic)[1]] == [b"1", b"4"]
    assert "nowhere" not in KafkaAdmin(KafkaSettings(bootstrap_servers=topics.bootstrap)).partition_counts(
        ["nowhere"]
    )


def test_a_known_count_outlives_the_brokers_answers(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_counts, "_MAX_AGE_SECONDS", 0)
    monkeypatch.setattr(partition_counts, "_TIMEOUT_SECONDS", 0.1)
    topic = topics.create()
    producer = SyncReliableProducer("orders", bootstrap_servers=NOWHERE)
    with producer, pytest.raises(BrokerError, match="brokers do not answer"):
        producer.partition_count(topic)
    monkeypatch.setattr(partition_counts, "_TIMEOUT_SECONDS", 30)
    counts = partition_counts.PartitionCounts({"bootstrap.servers": topics.bootstrap})
    assert counts.of(topic) == PARTITIONS
    counts._admin = LastingAdmin({"bootstrap.servers": NOWHERE, "log_level": 0})
    monkeypatch.setattr(partition_counts, "_TIMEOUT_SECONDS", 0.1)
    assert counts.of(topic) == PARTITIONS


@ways
def test_a_callback_that_blocks_stops_no_sending(topics: Topics, way: dict[str, Any]) -> None:
    """A blocked callback held up the thread that sends, or, with a local log, ran beside other callbacks.

    Brokers refuse one of the later records. Without transactions, the record beside it then goes through a new client.
    """
    topic = topics.create(1, max_message_bytes="2000")
    began = threading.Event()
    told: list[str] = []

    def wait(done: Future[DeliveryReport]) -> None:
        told.append("first begins")
        began.set()
        until(lambda: topics.values(topic) == [b"first", b"last"], 60, lambda: told)
        told.append("first ends")

    def note(name: str, done: Future[DeliveryReport]) -> None:
        told.append(f"{name}: {done.exception() and type(done.exception()).__name__}")

    with SyncReliableProducer(
        "orders",
        bootstrap_servers=topics.bootstrap,
        linger_ms=500,
        compression_type="none",
        spill_after_ms=600_000,
        **way,
    ) as producer:
        # The callbacks are there before the reports, because the records linger.
        producer.send_soon(topic, value=b"first").add_done_callback(wait)
        assert began.wait(60)
        for name, value in (("large", b"x" * 5_000), ("last", b"last")):
            producer.send_soon(topic, value=value).add_done_callback(partial(note, name))
        assert producer.flush(120_000)
    assert told == ["first begins", "first ends", "large: DeliveryError", "last: None"]


@ways
def test_a_callback_of_a_report_cannot_wait_for_its_producer(topics: Topics, way: dict[str, Any]) -> None:
    """The callback runs in the thread that reports. The thread waited for itself, so the producer stood still."""
    topic = topics.create()
    with SyncReliableProducer(
        "orders", bootstrap_servers=topics.bootstrap, linger_ms=1_000, buffer_records=2, **way
    ) as producer:
        refused: list[BaseException] = []
        told = threading.Event()

        def pay(order: Future[Any]) -> None:
            assert order.result().topic == topic
            payment = producer.send_soon(topic, value=b"payment")
            full = partial(producer.send_soon, topic, value=b"payment")
            end = partial(producer.__exit__, None, None, None)
            late = partial(producer.flush, 600_000)
            late_result, late_error = partial(payment.result, 600), partial(payment.exception, 600)
            with pytest.raises(TimeoutError):
                payment.result(0)  # a look, and no wait
            for call in (
                payment.result, payment.exception, late_result, late_error, producer.flush, late, end, full, full,
            ):  # fmt: skip
                try:
                    call()
                except StreamsError as error:
                    refused.append(error)
            told.set()

        producer.send_soon(topic, value=b"order").add_done_callback(
            pay
        )  # before the report: the record lingers
        assert told.wait(60)
        assert producer.flush()
    assert [type(error) for error in refused] == [*[StreamsError] * 7, BufferFull]
    assert "Call send_soon in the callback" in str(refused[0])
    assert sorted(map(bytes, filter(None, topics.values(topic)))) == [b"order", b"payment", b"payment"]


@ways
async def test_what_brokers_refuse_has_an_error_and_the_others_arrive(
    topics: Topics, way: dict[str, Any]
) -> None:
    topic = topics.create(1, max_message_bytes="2000")
    async with ReliableProducer(
        "orders", bootstrap_servers=topics.bootstrap, compression_type="none", batch_size=1_000, **way
    ) as producer:
        values = [b"a", b"x" * 5_000, b"b", b"c"]
        reports = await asyncio.gather(
            *(producer.send_soon(topic, key=b"k", value=value) for value in values), return_exceptions=True
        )
        assert isinstance(reports[1], DeliveryError)
        assert reports[1].written is False
        metrics = producer.metrics
        assert (metrics.events, metrics.confirmed, metrics.failed, metrics.unconfirmed) == (4, 3, 1, 0)
    assert topics.values(topic) == [b"a", b"b", b"c"]


async def test_a_topic_that_is_not_there(topics: Topics) -> None:
    async with ReliableProducer("orders", bootstrap_servers=topics.bootstrap, transactions=True) as producer:
        with pytest.raises(DeliveryError) as caught:
            await producer.send("no-such-topic", value=b"v")
    assert caught.value.written is False


async def test_a_transaction_arrives_whole_or_not_at_all(topics: Topics) -> None:
    orders, payments = topics.create(), topics.create()
    async with ReliableProducer("orders", bootstrap_servers=topics.bootstrap, transactions=True) as producer:
        async with producer.transaction() as transaction:
            transaction.send(orders, key=b"o1", value=b"paid")
            transaction.send(payments, key=b"p1", value=b"o1")
        assert [report.topic for report in transaction.reports] == [orders, payments]
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as transaction:
                transaction.send(orders, key=b"o2", value=b"paid")
                1 / 0  # noqa: B018
    assert (topics.values(orders), topics.values(payments)) == ([b"paid"], [b"o1"])
    assert producer.metrics.events == 2


def test_a_transaction_of_the_twin(topics: Topics) -> None:
    orders = topics.create()
    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap, transactions=True) as producer:
        with producer.transaction() as transaction:
            transaction.send(orders, key=b"o1", value=b"paid")
            transaction.send(orders, key=b"o1", value=b"sent")
        assert len(transaction.reports) == 2
    assert topics.values(orders) == [b"paid", b"sent"]


async def test_a_refused_record_takes_its_transaction_with_it(topics: Topics) -> None:
    topic = topics.create(1, max_message_bytes="2000")
    async with ReliableProducer(
        "orders", bootstrap_servers=topics.bootstrap, transactions=True, compression_type="none"
    ) as producer:
        with pytest.raises(DeliveryError):
            async with producer.transaction() as transaction:
                transaction.send(topic, value=b"a")
                transaction.send(topic, value=b"x" * 5_000)
        await producer.send(topic, value=b"b")
        assert (producer.metrics.failed, producer.metrics.confirmed) == (2, 1)
    assert topics.values(topic) == [b"b"]


async def test_transactions_have_to_be_asked_for() -> None:
    async with ReliableProducer("orders", bootstrap_servers=NOWHERE) as producer:
        with pytest.raises(ConfigError, match="transactions=True"):
            producer.transaction()


async def test_senders_wait_at_the_bound_in_order(topics: Topics) -> None:
    topic = topics.create(1)
    async with ReliableProducer("orders", bootstrap_servers=topics.bootstrap, buffer_records=3) as producer:
        await asyncio.gather(*(producer.send(topic, value=b"%d" % number) for number in range(200)))
    assert topics.values(topic) == [b"%d" % number for number in range(200)]


async def test_the_bound_refuses_and_says_so() -> None:
    producer: ReliableProducer[bytes, bytes]
    with pytest.raises(UnsentRecords) as caught:
        async with ReliableProducer(
            "orders", bootstrap_servers=NOWHERE, buffer_records=2, when_full="refuse", close_timeout_ms=100
        ) as producer:
            taken = [producer.send_soon("t", value=b"a"), producer.send_soon("t", value=b"b")]
            with pytest.raises(BufferFull):
                await producer.send("t", value=b"c")
            with pytest.raises(BufferFull):
                producer.send_soon("t", value=b"c")
            metrics = producer.metrics
            assert (metrics.events, metrics.unconfirmed, metrics.refused) == (2, 2, 2)
    assert caught.value.count == 2
    reports = await asyncio.gather(*taken, return_exceptions=True)
    assert all(isinstance(each, DeliveryError) for each in reports)
    assert adds_up(producer.metrics)
    assert producer.metrics.failed == 2


@pytest.mark.parametrize("when_full", ["refuse", "wait"])
async def test_a_record_that_is_larger_than_the_buffer_counts_as_refused(
    when_full: Literal["refuse", "wait"],
) -> None:
    async with ReliableProducer(
        "orders", bootstrap_servers=NOWHERE, buffer_bytes=100, when_full=when_full, close_timeout_ms=100
    ) as producer:
        with pytest.raises(BufferFull, match="raise buffer_records or buffer_bytes"):
            await producer.send("t", value=bytes(100))
        with pytest.raises(BufferFull, match="raise buffer_records or buffer_bytes"):
            producer.send_soon("t", value=bytes(100))
        assert (producer.metrics.events, producer.metrics.refused) == (0, 2)


async def test_a_cancelled_wait_for_room_gives_the_place_back() -> None:
    with pytest.raises(UnsentRecords):
        async with ReliableProducer(
            "orders", bootstrap_servers=NOWHERE, buffer_records=1, close_timeout_ms=100
        ) as producer:
            taken = producer.send_soon("t", value=b"a")
            waiting = asyncio.create_task(producer.send("t", value=b"b"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert producer.metrics.events == 1
    with pytest.raises(DeliveryError):
        await taken
    assert producer.metrics.buffered_records == 0


async def test_what_cannot_be_sent_is_refused_early(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="spill_dir"):
        ReliableProducer("orders", when_full="spill")
    with pytest.raises(ConfigError, match="compression_type"):
        ReliableProducer("orders", compression_type="zip")
    with pytest.raises(ConfigError, match="linger_ms"):
        ReliableProducer("orders", linger_ms=-1)
    with pytest.raises(ConfigError, match="no.such.property"):
        async with ReliableProducer(
            "orders", client_properties={"no.such.property": "1"}, spill_dir=tmp_path / "spill"
        ):
            pass
    assert not (tmp_path / "spill").exists()
    with pytest.raises(ConfigError, match="producer's name"):
        ReliableProducer("my orders")
    closed = ReliableProducer("orders", key_serde=StringSerde(), bootstrap_servers=NOWHERE)
    with pytest.raises(BrokerError, match="not open"):
        await closed.send("t", key="k", value=b"v")
    async with closed:
        with pytest.raises(SerializationError):
            await closed.send("t", key=1, value=b"v")  # type: ignore[arg-type]
        with pytest.raises(BufferFull, match="buffer_bytes"):
            await closed.send("t", key="k", value=b"v" * (33 << 20))
    assert closed.metrics.events == 0


def test_a_plain_client_chooses_the_same_partitions(topics: Topics) -> None:
    ours, plain = topics.create(), topics.create()
    keys = [b"key-%d" % number for number in range(100)]
    client = Producer(
        {"bootstrap.servers": topics.bootstrap, "partitioner": "murmur2_random", "enable.idempotence": True}
    )
    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap) as producer:
        for key in keys:
            producer.send_soon(ours, key=key)
            client.produce(plain, key=key)
    client.flush()
    assert topics.read(ours) == topics.read(plain)


def test_prometheus_reads_the_account(topics: Topics) -> None:
    topic = topics.create()
    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap) as producer:
        producer.send(topic, value=b"v")
    lines = producer.exposition().splitlines()
    assert 'streamapp_producer_events_total{producer="orders"} 1' in lines
    assert 'streamapp_producer_confirmed_total{producer="orders"} 1' in lines


class Server:
    """A registry whose server answers when the event loop says so."""

    def __init__(self, away: bool = False) -> None:
        self.inner, self.answer = LocalSchemaRegistry(), threading.Event()
        self.away, self.asked = away, 0

    def id_of(self, subject: str, schema: Any, format: SchemaFormat = "AVRO") -> int:
        self.asked += 1
        assert self.answer.wait(10), "the event loop stood still"
        if self.away:
            raise RegistryAway("the registry does not answer")
        return self.inner.id_of(subject, schema, format)

    def schema_of(self, schema_id: int, format: SchemaFormat = "AVRO") -> Any:
        return self.inner.schema_of(schema_id, format)

    def version_of(self, subject: str, version: int | Literal["latest"] = "latest") -> SchemaVersion:
        return self.inner.version_of(subject, version)


async def test_the_event_loop_goes_on_while_a_registry_is_away(topics: Topics) -> None:
    topic, other = topics.create(1), topics.create(1)
    registry = Server()
    serde = ListSerde(AvroSerde[Any]('"string"', registry=registry))
    async with ReliableProducer(
        "orders-service", value_serde=serde, bootstrap_servers=topics.bootstrap
    ) as producer:
        sends = [asyncio.create_task(producer.send(topic, value=[str(n)])) for n in range(20)]
        elsewhere = asyncio.create_task(producer.send(other, value=["x"]))
        while registry.asked < 2:
            await asyncio.sleep(0.01)
        sends += [asyncio.create_task(producer.send(topic, value=[str(n)])) for n in range(20, 40)]
        asyncio.get_running_loop().call_later(0.1, registry.answer.set)
        await sends[0]
        sends += [asyncio.create_task(producer.send(topic, value=[str(n)])) for n in range(40, 60)]
        await asyncio.gather(*sends, elsewhere)
    assert registry.asked == 2  # once for each topic
    read = serde.bind(topic, False).deserialize
    assert [read(value or b"") for value in topics.values(topic)] == [[str(n)] for n in range(60)]


async def test_calls_that_wait_for_a_registry_share_its_failure(topics: Topics) -> None:
    topic = topics.create(1)
    registry = Server(away=True)
    serde = AvroSerde[Any]('"string"', registry=registry)
    async with ReliableProducer(
        "orders-service", value_serde=serde, bootstrap_servers=topics.bootstrap
    ) as producer:
        sends = [asyncio.create_task(producer.send(topic, value=str(n))) for n in range(5)]
        asyncio.get_running_loop().call_later(0.1, registry.answer.set)
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(each) for each in outcomes] == [RegistryAway] * 5
        assert registry.asked == 1
        assert (producer.metrics.events, producer.metrics.failed) == (0, 0)  # the calls have raised
        reports = [producer.send_soon(topic, value=str(number)) for number in range(3)]
        outcomes = await asyncio.gather(*reports, return_exceptions=True)
        assert [type(each) for each in outcomes] == [RegistryAway] * 3
        assert (producer.metrics.events, producer.metrics.failed) == (3, 3)
        registry.away = False
        await producer.send(topic, value="5")
    assert len(topics.values(topic)) == 1


async def test_calls_that_are_cancelled_while_a_registry_is_away_leave_one_thread(topics: Topics) -> None:
    topic = topics.create(1)
    registry = Server()
    serde = AvroSerde[Any]('"string"', registry=registry)
    async with ReliableProducer(
        "orders-service", value_serde=serde, bootstrap_servers=topics.bootstrap
    ) as producer:
        before = threading.active_count()
        for number in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send(topic, value=str(number)), 0.01)
        together = [asyncio.wait_for(producer.send(topic, value=str(n)), 0.05) for n in range(20)]
        outcomes = await asyncio.gather(*together, return_exceptions=True)
        assert [type(each) for each in outcomes] == [TimeoutError] * 20
        assert (registry.asked, threading.active_count()) == (1, before + 1)
        asyncio.get_running_loop().call_later(0.1, registry.answer.set)
        await producer.send(topic, value="last")
        assert registry.asked == 1
    assert len(topics.values(topic)) == 1


async def test_a_call_behind_a_cancelled_one_gets_the_error_of_its_registry(topics: Topics) -> None:
    topic = topics.create(1)
    registry = Server(away=True)
    serde = AvroSerde[Any]('"string"', registry=registry)
    async with ReliableProducer(
        "orders-service", value_serde=serde, bootstrap_servers=topics.bootstrap
    ) as producer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send(topic, value="1"), 0.01)
        asyncio.get_running_loop().call_later(0.1, registry.answer.set)
        with pytest.raises(RegistryAway):
            await producer.send(topic, value="2")
        assert registry.asked == 1
        registry.away = False
        await producer.send(topic, value="3")


async def test_send_soon_does_not_overtake_a_send_that_waits_for_a_registry(topics: Topics) -> None:
    topic = topics.create(1)
    registry = Server()
    serde = AvroSerde[Any]('"string"', registry=registry)
    async with ReliableProducer(
        "orders-service", value_serde=serde, bootstrap_servers=topics.bootstrap
    ) as producer:
        first = asyncio.create_task(producer.send(topic, value="0"))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.1, registry.answer.set)
        second = producer.send_soon(topic, value="1")  # stood still for ten seconds
        third = asyncio.create_task(producer.send(topic, value="2"))
        await first
        fourth = producer.send_soon(topic, value="3")
        await asyncio.gather(second, third, fourth)
    read = serde.bind(topic, False).deserialize
    assert [read(value or b"") for value in topics.values(topic)] == ["0", "1", "2", "3"]


async def test_send_soon_waits_for_a_registry_beside_the_event_loop(topics: Topics) -> None:
    topic = topics.create(1)
    registry = Server()
    serde = AvroSerde[Any]('"string"', registry=registry)
    async with ReliableProducer(
        "orders-service", value_serde=serde, bootstrap_servers=topics.bootstrap, buffer_records=3
    ) as producer:
        reports = [producer.send_soon(topic, value=str(number)) for number in range(2)]
        wrong = producer.send_soon(topic, value=3)
        with pytest.raises(BufferFull):
            producer.send_soon(topic, value="4")
        assert not await producer.flush(10)
        asyncio.get_running_loop().call_later(0.1, registry.answer.set)
        assert await producer.flush()
        assert isinstance(wrong.exception(), SerializationError)
        await asyncio.gather(*reports)
        last = producer.send_soon(topic, value="5")
    assert last.done()
    metrics = producer.metrics
    assert (metrics.events, metrics.confirmed, metrics.failed) == (4, 3, 1)  # the wrong one, too
    read = serde.bind(topic, False).deserialize
    assert [read(value or b"") for value in topics.values(topic)] == ["0", "1", "5"]


async def test_records_that_wait_for_a_registry_count_in_the_bytes_of_the_buffer(topics: Topics) -> None:
    """Only their number was limited, so the values of an outage could take all memory."""
    topic = topics.create(1)
    registry = Server()
    serde = AvroSerde[Any]('"string"', registry=registry)
    async with ReliableProducer(
        "orders-service", value_serde=serde, bootstrap_servers=topics.bootstrap, buffer_bytes=1_020
    ) as producer:
        reports = [producer.send_soon(topic, value=str(number) * 400) for number in range(2)]
        cancelled = producer.send_soon(topic, value="c")
        assert (producer.metrics.buffered_records, producer.metrics.buffered_bytes) == (3, 1_017)
        with pytest.raises(BufferFull, match="3 records of 1,017 bytes not confirmed"):
            producer.send_soon(topic, value="4" * 400)
        cancelled.cancel()
        asyncio.get_running_loop().call_later(0.1, registry.answer.set)
        await asyncio.gather(*reports)
        assert await producer.flush()
        assert producer.metrics.buffered_bytes == 0
    assert len(topics.values(topic)) == 3


async def test_a_producer_that_closes_while_a_registry_is_away_gives_every_record_an_answer(
    topics: Topics,
) -> None:
    topic = topics.create(1)
    registry = Server()
    serde = AvroSerde[Any]('"string"', registry=registry)
    producer = ReliableProducer(
        "orders-service", value_serde=serde, bootstrap_servers=topics.bootstrap, close_timeout_ms=50
    )
    with pytest.raises(UnsentRecords, match="2 records that waited for the schema registry"):
        async with producer:
            reports = [producer.send_soon(topic, value=str(number)) for number in range(2)]
    outcomes = await asyncio.gather(*reports, return_exceptions=True)
    assert [isinstance(each, DeliveryError) and each.written for each in outcomes] == [False, False]
    registry.answer.set()


async def test_a_record_that_has_waited_for_a_registry_is_in_the_log_at_the_end_of_its_producer() -> None:
    """The report was an error that said that no topic would get the record."""
    registry = Server()
    serde = AvroSerde[Any]('"string"', registry=registry)
    async with ReliableProducer(
        "orders-service",
        value_serde=serde,
        bootstrap_servers=NOWHERE,
        spill_dir="spill",
        close_timeout_ms=300,
    ) as producer:
        report = producer.send_soon("orders", value="0")
        registry.answer.set()
    assert (await report).spilled


async def test_a_producer_whose_end_is_cancelled_closes() -> None:
    registry = Server()
    serde = AvroSerde[Any]('"string"', registry=registry)
    producer = ReliableProducer("orders-service", value_serde=serde, bootstrap_servers=NOWHERE)
    await producer.__aenter__()
    report = producer.send_soon("orders", value="0")
    end = asyncio.create_task(producer.__aexit__(None, None, None))
    await asyncio.sleep(0.05)
    last = producer.send_soon("orders", value="1")
    end.cancel()
    with pytest.raises(asyncio.CancelledError):
        await end
    with pytest.raises(BrokerError, match="is closed"):
        producer.send_soon("orders", value="2")
    for each in report, last:
        with pytest.raises(DeliveryError, match="while the record waited"):
            await each
    registry.answer.set()


async def test_a_transaction_that_waits_for_a_registry_keeps_the_order(topics: Topics) -> None:
    topic, plain = topics.create(1), topics.create(1)
    registry = Server()
    serde = AvroSerde[Any]('"string"', registry=registry)
    async with ReliableProducer(
        "orders-service", value_serde=serde, bootstrap_servers=topics.bootstrap, transactions=True
    ) as producer:
        first = asyncio.create_task(producer.send(topic, value="0"))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.1, registry.answer.set)
        async with producer.transaction() as transaction:
            transaction.send(topic, value="1")  # stood still for ten seconds
            transaction.send(plain, value=None, key=b"k")
            transaction.send(topic, value="2")
        later = await producer.send(topic, value="3")
        await first
    assert [report.topic for report in transaction.reports] == [topic, plain, topic]
    assert later.offset is not None
    read = serde.bind(topic, False).deserialize
    assert [read(value or b"") for value in topics.values(topic)] == ["0", "1", "2", "3"]
    assert len(topics.values(plain)) == 1


async def test_a_send_does_not_overtake_a_transaction_that_waits_for_a_registry(topics: Topics) -> None:
    topic, plain = topics.create(1), topics.create(1)
    registry = Server()
    serde = AvroSerde[Any]('"string"', registry=registry)
    async with ReliableProducer(
        "orders-service", key_serde=serde, bootstrap_servers=topics.bootstrap, transactions=True
    ) as producer:

        async def pay() -> None:
            async with producer.transaction() as transaction:
                transaction.send(topic, key="k")
                transaction.send(plain, value=b"0")

        payment = asyncio.create_task(pay())
        await asyncio.sleep(0)
        later = producer.send_soon(plain, value=b"1")
        registry.answer.set()
        await asyncio.gather(payment, later)
    assert topics.values(plain) == [b"0", b"1"]


async def test_a_send_does_not_overtake_a_call_that_has_just_got_its_space(topics: Topics) -> None:
    topic = topics.create(1)
    async with ReliableProducer(
        "orders-service", bootstrap_servers=topics.bootstrap, buffer_records=1
    ) as producer:
        core = producer._core
        claim = Claim(1, 64)
        assert core._buffer.try_reserve(claim)
        first = asyncio.create_task(producer.send(topic, value=b"0"))
        await asyncio.sleep(0)
        core._buffer.give_up(claim)  # from now on, the first call has the space
        core._buffer._most_records = 9
        second = asyncio.ensure_future(producer.send(topic, value=b"1"))
        with pytest.raises(BufferFull):
            producer.send_soon(topic, value=b"2")
        await asyncio.gather(first, second)
    assert topics.values(topic) == [b"0", b"1"]


async def test_a_short_time_out_names_a_missing_topic(topics: Topics) -> None:
    """librdkafka waits 30 s for a topic that brokers do not know, so the error was only "Message timed out"."""
    there = topics.create()
    async with ReliableProducer(
        "orders", bootstrap_servers=topics.bootstrap, delivery_timeout_ms=1_500
    ) as producer:
        await producer.send(there, key=b"k")
        for partition in (None, 1):
            with pytest.raises(DeliveryError) as raised:
                await producer.send(f"{there}-missing", key=b"k", partition=partition)
            assert f"Create the topic: streamapp topic create {there}-missing" in str(raised.value)
            assert not raised.value.refused  # somebody may create the topic


def test_transactions_name_a_missing_topic(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session, "_UNKNOWN_SECONDS", 1.0)
    missing = f"{topics.create()}-missing"
    with (
        SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap, transactions=True) as producer,
        pytest.raises(DeliveryError, match=f"streamapp topic create {missing}"),
    ):
        producer.send(missing, key=b"k")
    assert f"not committed: a record for {missing}: " in caplog.text
