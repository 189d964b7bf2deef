"""A store whose source topic is its changelog (``add_read_only_state_store``, KIP-813)."""

from __future__ import annotations

from streamapp import StreamsConfig, StringSerde, TopologyTestDriver

from ..processes import until
from .conftest import Cluster
from .read_only_app import priced

DESCRIPTION = """\
Topologies:
   Sub-topology: 0
    Source: orders (topics: [orders])
      --> price
    Processor: price (stores: [rates])
      --> out
      <-- orders
    Source: read (topics: [rates])
      --> keep
    Processor: keep (stores: [rates])
      --> none
      <-- read
    Sink: out (topic: out)
      <-- price
"""
"""The text of Kafka Streams 4.3.1."""


def test_the_topic_is_the_changelog_and_there_is_no_other() -> None:
    topology, text = priced("rates", "orders", "out"), StringSerde()
    assert topology.describe().strip() == DESCRIPTION.strip()
    plan = topology.plan(StreamsConfig("app", auto_offset_reset="latest"))
    assert plan.internal_topics == ()
    assert plan.subtopologies[0].changelog_topics["rates"].name == "rates"
    assert (plan.offset_reset("rates"), plan.offset_reset("orders")) == ("earliest", "latest")
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("rates", text, text).pipe_input("eur", "1.1")
        driver.create_input_topic("orders", text, text).pipe_input("eur", "10")
        assert driver.create_output_topic("out", text, text).read_values() == ["10 at 1.1"]
        assert list(driver.produced) == ["out"]


def test_the_store_is_restored_from_its_topic(cluster: Cluster) -> None:
    rates = f"{cluster.source}-rates"
    cluster.create(rates)

    def send(topic: str, *values: str) -> None:
        for number, value in enumerate(values):
            cluster.producer.produce(topic, value, f"k{number}")
        assert cluster.producer.flush(30) == 0

    def priced_as(*values: str) -> None:
        wanted = [(f"k{number}".encode(), value.encode()) for number, value in enumerate(values)]
        until(lambda: sorted(cluster.read(cluster.sink)) == sorted(wanted), 60, cluster.story)

    send(rates, "1", "2", "3")
    first = cluster.start("a", app="read_only_app")
    first.wait_for("ready: ")
    until(lambda: cluster.committed(rates) == 3, 60, cluster.story)
    send(cluster.source, "x", "y")
    priced_as("x at 1", "y at 2")
    assert first.terminate() == 0
    second = cluster.start("b", app="read_only_app")  # with another state folder
    second.wait_for("ready: ")
    cluster.producer.produce(cluster.source, "z", "k2")
    assert cluster.producer.flush(30) == 0
    priced_as("x at 1", "y at 2", "z at 3")
    assert "records restored" in second.text() or "record restored" in second.text()
