"""Global stores, fed without a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamapp import (
    JsonSerde,
    LongSerde,
    Materialized,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    TopicPartition,
)
from streamapp.engine.global_state import GlobalState
from streamapp.records import RecordBatch

POISON = RecordBatch([b"a", b"b", b"c"], [b"1", b"{{{", b"3"], [1, 2, 3], range(7, 10), None)


def state(handler: str) -> GlobalState:
    config = StreamsConfig(
        "app",
        deserialization_exception_handler=handler,  # type: ignore[arg-type]
        dead_letter_queue_topic="dead",
    )
    builder = StreamsBuilder(config)
    builder.global_table(
        "rates", key_serde=StringSerde(), value_serde=JsonSerde(), materialized=Materialized("rates")
    )
    text = StringSerde()
    builder.stream("in", key_serde=text, value_serde=text).to("out")
    return GlobalState(builder.build().plan(config), wall_clock_ms=lambda: 0)


def test_a_record_that_cannot_be_decoded_is_dropped_without_a_dead_letter() -> None:
    rates = state("continue")
    rates.process(TopicPartition("rates", 2), POISON)
    assert [key for key, _ in rates.stores["rates"].all()] == ["a", "c"]
    assert rates.dropped_records == 1
    assert rates.positions() == {TopicPartition("rates", 2): 10}


def test_one_that_is_to_stop_the_worker_is_named() -> None:
    with pytest.raises(StreamsError, match="record of rates-2 at offset 8 could not be deserialized"):
        state("fail").process(TopicPartition("rates", 2), POISON)


@pytest.mark.parametrize("handler", ["continue", "skip", "dead_letter"])
def test_a_processor_that_raises_costs_its_record_only(handler: str) -> None:
    """KIP-1270. Each process reads the topic, and again at each start, so there is no letter: the drop is counted and logged."""

    class Keep:
        def init(self, context: Any) -> None:
            self.store = context.get_state_store("rates")

        def process(self, record: Any) -> None:
            self.store.put(record.key, int(record.value))

        def close(self) -> None: ...

    text = StringSerde()
    config = StreamsConfig(
        "app",
        processing_exception_handler=handler,  # type: ignore[arg-type]
        dead_letter_queue_topic="dead",
    )
    builder = StreamsBuilder(config)
    store = replace(Stores.key_value("rates", text, LongSerde()), logged=False)
    builder.add_global_store(store, "rates", Keep, key_serde=text, value_serde=text)
    builder.stream("in", key_serde=text, value_serde=text).to("out")
    state = GlobalState(builder.build().plan(config), wall_clock_ms=lambda: 0)
    state.process(TopicPartition("rates", 2), POISON)
    assert [key for key, _ in state.stores["rates"].all()] == ["a", "c"]
    assert [reason for _, reason in state.drops] == ["failed"]
    assert state.positions() == {TopicPartition("rates", 2): 10}
