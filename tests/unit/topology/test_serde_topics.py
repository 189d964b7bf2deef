"""The topic of each serde is Kafka Streams' topic, for records, stores and comparisons of foreign-key joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamapp import (
    BufferConfig,
    JoinWindows,
    Materialized,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindowedSerde,
    TimeWindows,
    TopologyTestDriver,
)
from streamapp.errors import SerializationError
from streamapp.serdes import Serde

Use = tuple[str, str, bool]
USED: set[tuple[str, str, bool | None]] = set()


class Noting(Serde[str]):
    """Text, and a note of each topic that it is used for."""

    immutable = True

    def __init__(self, name: str, topic: str = "NO TOPIC", is_key: bool | None = None) -> None:
        self.name, self.topic, self.is_key = name, topic, is_key

    def bind(self, topic: str, is_key: bool) -> Noting:
        return Noting(self.name, topic, is_key)

    def serialize(self, value: str) -> bytes:
        USED.add((self.name, self.topic, self.is_key))
        if not isinstance(value, str):
            raise SerializationError(f"expected text, got {value!r:.60}")
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        USED.add((self.name, self.topic, self.is_key))
        return data.decode()


def of(name: str) -> dict[str, Any]:
    return {"key_serde": Noting(f"{name} key"), "value_serde": Noting(f"{name} value")}


def both(name: str, topic: str) -> set[Use]:
    return {(f"{name} key", topic, True), (f"{name} value", topic, False)}


IN, OTHER, OUT = both("in", "in"), both("other", "other"), both("out", "out")
STORE = both("kept", "app-store-changelog")


def latest(old: str, new: str) -> str:
    return new


def reduced(b: StreamsBuilder, **options: Any) -> Any:
    grouped = b.stream("in", **of("in")).group_by_key()
    return grouped.reduce(latest, materialized=Materialized("store", **of("kept"), **options))


def windowed(b: StreamsBuilder, windows: Any, **options: Any) -> Any:
    grouped = b.stream("in", **of("in")).group_by_key().windowed_by(windows)
    return grouped.reduce(latest, materialized=Materialized("store", **of("kept"), **options))


def unwindowed(table: Any) -> Any:
    return table.to_stream().select_key(lambda window, _: window.key)


def repartitioned(b: StreamsBuilder) -> Any:
    stream = b.stream("in", **of("in")).select_key(lambda k, v: v)
    return stream.repartition(name="again", **of("kept"))


def streams(b: StreamsBuilder) -> Any:
    left, right = b.stream("in", **of("in")), b.stream("other", **of("other"))
    given = StreamJoined("j", "j", key_serde=Noting("kept key"))
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    return left.outer_join(right, "{}{}".format, windows, stream_joined=given)


def by_foreign_key(b: StreamsBuilder) -> Any:
    left = b.table("in", **of("in"), materialized=Materialized("left"))
    right = b.table("other", **of("other"), materialized=Materialized("right"))
    return left.join(right, "{}{}".format, foreign_key=lambda v: "k", name="fk").to_stream()


def buffered(b: StreamsBuilder) -> Any:
    history = Materialized("store", history_retention=100)
    table = b.table("other", **of("other"), materialized=history)
    return b.stream("in", **of("in")).join(table, "{}{}".format, grace=10, name="slow")


def suppressed(b: StreamsBuilder) -> Any:
    table = reduced(b).suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded(), name="late"))
    return table.to_stream()


SUBSCRIPTIONS = "app-fk-subscription-registration-topic"
CASES: dict[str, tuple[Callable[[StreamsBuilder], Any], set[Use]]] = {
    "records": (lambda b: b.stream("in", **of("in")), IN),
    "a topic per record": (lambda b: b.stream("in", **of("in")), IN),
    "a repartition topic": (repartitioned, IN | both("kept", "app-again-repartition")),
    "a table": (lambda b: reduced(b).to_stream(), IN | STORE),
    "a table in memory": (lambda b: reduced(b, store_type="in_memory").to_stream(), IN | STORE),
    "a bounded table": (lambda b: reduced(b, store_type="lru", max_entries=5).to_stream(), IN | STORE),
    "a table without changelog": (lambda b: reduced(b, logging=False).to_stream(), IN | STORE),
    "a versioned table": (lambda b: reduced(b, history_retention=50).to_stream(), IN | STORE),
    "a table that expires": (lambda b: reduced(b, ttl=50).to_stream(), IN | STORE),
    "windows": (lambda b: unwindowed(windowed(b, TimeWindows.of_size_with_no_grace(10))), IN | STORE),
    "windows in memory": (
        lambda b: unwindowed(windowed(b, TimeWindows.of_size_with_no_grace(10), store_type="in_memory")),
        IN | STORE,
    ),
    "sessions": (
        lambda b: unwindowed(
            b.stream("in", **of("in"))
            .group_by_key()
            .windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
            .reduce(latest, materialized=Materialized("store", **of("kept")))
        ),
        IN | STORE,
    ),
    "a table of a topic": (
        lambda b: b.table("in", **of("in"), materialized=Materialized("store")).to_stream(),
        IN | both("in", "app-store-changelog"),
    ),
    "a join of streams": (
        streams,
        IN
        | OTHER
        | {
            ("kept key", f"app-j-{side}-changelog", True)
            for side in ("outer-this-join-store", "outer-other-join-store", "outer-shared-join-store")
        }
        | {("in value", "app-j-outer-this-join-store-changelog", False)}
        | {("other value", "app-j-outer-other-join-store-changelog", False)}
        | {("in value", "app-j-outer-shared-join-store-changelog", False)}
        | {("other value", "app-j-outer-shared-join-store-changelog-right", False)},
    ),
    "a foreign-key join": (
        by_foreign_key,
        IN
        | OTHER
        | both("in", "app-left-changelog")
        | both("other", "app-right-changelog")
        | {
            ("other key", SUBSCRIPTIONS, True),
            ("in key", "app-fk-subscription-response-topic", True),
            ("other value", "app-fk-subscription-response-topic", False),
            ("other key", f"{SUBSCRIPTIONS}-fk", True),
            ("in key", f"{SUBSCRIPTIONS}-pk", True),
            ("in value", f"{SUBSCRIPTIONS}-vh", False),
        },
    ),
    "a buffer of a join with grace": (
        buffered,
        IN | OTHER | both("other", "app-store-changelog") | both("in", "app-slow-Buffer-changelog"),
    ),
    "a suppression": (suppressed, IN | STORE | both("kept", "app-late-store-changelog")),
}


RECORDS = (
    ("other", "k", "o"),
    ("in", "k", "x"),
    ("in", "l", "y"),
    ("in", "k", "y"),
    ("other", "k", "p"),
    ("in", "z", "k"),
    ("in", "k", "x"),
    ("other", "q", "q"),
)


@pytest.mark.parametrize("case", CASES)
def test_each_use_of_a_serde_has_the_topic_of_kafka_streams(case: str) -> None:
    build, expected = CASES[case]
    b = StreamsBuilder(StreamsConfig("app"))
    stream = build(b)
    if case == "a topic per record":
        stream.to(lambda key, value, context: f"to-{value}", **of("out"))
        expected = expected | both("out", "to-x") | both("out", "to-y") | both("out", "to-k")
    else:
        stream.to("out", **of("out"))
        expected = expected | OUT
    USED.clear()
    with TopologyTestDriver(b.build()) as driver:
        for time, (topic, key, value) in enumerate(RECORDS):
            if topic == "in" or "other" in {name.split()[0] for name, _, _ in expected}:
                driver.pipe_raw(topic, key.encode(), value.encode(), time * 7)
        for store in driver.stores.values():  # queries, too
            list(store.all()) if hasattr(store, "all") else None
    assert expected == USED


def test_stores_that_are_global_have_their_topic() -> None:
    b = StreamsBuilder(StreamsConfig("app"))
    b.global_table("other", **of("other"), materialized=Materialized("store"))
    USED.clear()
    with TopologyTestDriver(b.build()) as driver:
        driver.pipe_raw("other", b"k", b"v", 0)
        assert driver.store("store").get("k")[0] == "v"
    assert OTHER == USED


def test_a_table_whose_changelog_is_its_topic_has_that() -> None:
    b = StreamsBuilder(StreamsConfig("app", topology_optimization="all"))
    table = b.table("in", **of("in"), materialized=Materialized("store"))
    table.to_stream().to("out", **of("out"))
    USED.clear()
    with TopologyTestDriver(b.build()) as driver:
        driver.pipe_raw("in", b"k", b"v", 0)
    assert IN | OUT == USED


def test_the_partitioner_of_windowed_keys_has_the_topic_of_the_sink() -> None:
    b = StreamsBuilder(StreamsConfig("app"))
    table = windowed(b, TimeWindows.of_size_with_no_grace(10))
    out = {"key_serde": TimeWindowedSerde(Noting("out key"), 10), "value_serde": Noting("out value")}
    table.to_stream().to("out", **out)
    USED.clear()
    with TopologyTestDriver(b.build()) as driver:
        driver.pipe_raw("in", b"k", b"v", 0)
    assert USED == IN | STORE | OUT
