"""A member of a group on the broker that librdkafka brings along for tests."""

from __future__ import annotations

from confluent_kafka import TopicPartition as KafkaPartition

from streamapp import StreamsConfig
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.subscription import Subscription

from ...processes import until
from ..broker.test_consumer import MockKafka
from .test_dispatcher import options


def test_a_partition_that_was_paused_is_read_when_it_comes_back() -> None:
    """librdkafka keeps the pause: a partition with a full buffer stood still for good after a rebalance."""
    broker = MockKafka()
    for number in range(20):
        broker.write(0, b"k", str(number).encode(), 1)
    config = StreamsConfig("flights", bootstrap_servers=broker.settings["bootstrap.servers"])
    given = options(
        name="flights", topics=("delays",), config=config, buffer_records=4, revoke_timeout_ms=100
    )
    dispatcher = Dispatcher(given)
    subscription = Subscription(given, dispatcher, None, None)

    found: list[int] = []

    def arrived() -> bool:
        subscription.poll()
        with dispatcher.changed:
            if (unit := dispatcher.next_unit()) is not None:
                found.append(unit.items[0].offset)
        return bool(found)

    until(lambda: arrived() and bool(dispatcher.paused), 60, lambda: "the buffer is not full")
    sources = list(dispatcher.sources)
    partitions = [KafkaPartition(*source) for source in sources]
    subscription._give_back(subscription._client, partitions, sources)
    subscription._on_assign(subscription._client, partitions)
    found.clear()
    until(arrived, 20, lambda: "nothing arrives after the rebalance")
    assert found == [0]
    subscription.close()
