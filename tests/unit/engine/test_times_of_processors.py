"""Times that a processor gives to a record or to a store: only whole numbers of 64 bits can be written to Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamapp import (
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    TopologyTestDriver,
)

TEXT = StringSerde()
NOW = 1_700_000_000_000.5
"""``time.time() * 1000``: the test driver took this time, and workers failed at the commit."""

STORES = {
    "plain": Stores.key_value("plain", TEXT, TEXT),
    "table": Stores.timestamped_key_value("table", TEXT, TEXT),
    "windows": Stores.window("windows", TEXT, TEXT, retention=1000, window_size=10, timestamped=True),
    "sessions": Stores.session("sessions", TEXT, TEXT, retention=1000),
    "exact": Stores.session("exact", TEXT, TEXT, retention=1000, store_type="in_memory"),
    "versions": Stores.versioned("versions", TEXT, TEXT, history_retention=1000),
}

WRITES: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "put": ("plain", lambda store, time: store.put("k", "v", time)),
    "put_if_absent": ("table", lambda store, time: store.put_if_absent("k", "v", time)),
    "delete": ("table", lambda store, time: store.delete("k", time)),
    "start of a window": ("windows", lambda store, time: store.put("k", "v", time)),
    "time of a window": ("windows", lambda store, time: store.put("k", "v", 5, time)),
    "start of a session": ("sessions", lambda store, time: store.put("k", time, 9, "v")),
    "end of a session": ("sessions", lambda store, time: store.remove("k", 5, time)),
    "removal in memory": ("exact", lambda store, time: store.remove("k", 5, time)),
    "version": ("versions", lambda store, time: store.put("k", "v", time)),
}


def run(work: Callable[[Any], Any], *stores: str) -> list[Any]:
    """Runs a processor that calls ``work`` with its context, and returns the records of its topic."""

    class Worker(Processor[Any, Any, Any, Any]):
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Record[Any, Any]) -> None:
            work(self.context)

    builder = StreamsBuilder(StreamsConfig("times", statestore_cache_max_bytes=0))
    for store in stores:
        builder.add_state_store(STORES[store])
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT).process(Worker, *stores)
    stream.to("out", key_serde=TEXT, value_serde=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v", timestamp=1)
        return list(driver.produced.get("out", []))


@pytest.mark.parametrize("case", WRITES)
@pytest.mark.parametrize("time", [NOW, "7"])
def test_a_store_refuses_a_time_that_is_no_whole_number(case: str, time: Any) -> None:
    store, write = WRITES[case]
    with pytest.raises(StreamsError, match=r"PROCESSOR.*record of in-0.*a timestamp is an int"):
        run(lambda context: write(context.get_state_store(store), time), store)


@pytest.mark.parametrize("case", WRITES)
def test_a_store_refuses_a_time_beyond_64_bits(case: str) -> None:
    """So far, the commit failed, and its error named neither the record nor the processor."""
    store, write = WRITES[case]
    with pytest.raises(
        StreamsError, match=r"PROCESSOR.*record of in-0.*ValueError: a timestamp has at most 64 bits"
    ):
        run(lambda context: write(context.get_state_store(store), 2**63), store)


@pytest.mark.parametrize("store", ["sessions", "exact"])
def test_no_session_ends_before_its_start(store: str) -> None:
    """As in Kafka Streams (``SessionWindow``)."""
    with pytest.raises(
        StreamsError, match=f"ValueError: store {store}: a session cannot end at 5, before its start at 9"
    ):
        run(lambda context: context.get_state_store(store).put("k", 9, 5, "v"), store)


def test_no_forwarded_record_has_a_time_beyond_64_bits() -> None:
    with pytest.raises(StreamsError, match=r"PROCESSOR.*a timestamp has at most 64 bits"):
        run(lambda context: context.forward(Record("k", "v", 2**63)))


@pytest.mark.parametrize("time", [NOW, "7", None])
def test_a_forwarded_record_has_a_whole_number_as_time(time: Any) -> None:
    with pytest.raises(StreamsError, match=r"PROCESSOR.*a timestamp is an int"):
        run(lambda context: context.forward(Record("k", "v", time)))


def test_no_copy_of_a_record_has_a_negative_time() -> None:
    """As in Kafka Streams. A processor that writes the copy into a store first would have changed its state."""
    record = Record("k", "v", 1)
    assert record.with_timestamp(0).timestamp == 0
    with pytest.raises(ValueError, match=r"must not be negative, and -2 is"):
        record.with_timestamp(record.timestamp - 3)


def test_whole_numbers_are_times() -> None:
    def work(context: Any) -> None:
        for store, write in WRITES.values():
            write(context.get_state_store(store), 7)
        context.forward(Record("k", "v", 7))

    assert [record.timestamp for record in run(work, *STORES)] == [7]
