"""Global stores, fed without a broker."""

from __future__ import annotations

import pytest

from streamapp import (
    JsonSerde,
    Materialized,
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
