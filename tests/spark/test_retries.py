"""A retry waits by the wall clock, which Spark does not have: refused when the plan is made; other answers run."""

from __future__ import annotations

import pytest

from streamapp import OnError, Retry, StreamsBuilder, StreamsConfig, StringSerde, UnsupportedOperation
from streamapp.runners.spark.run_order import check_runnable
from streamapp.topology.plan import Plan

TEXT = StringSerde()


def plan(on_error: OnError) -> Plan:
    builder = StreamsBuilder(StreamsConfig("app", dead_letter_queue_topic="dead"))
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    stream.map_values(str.upper, on_error=on_error, name="look-up").to("out", value_serde=TEXT)
    return builder.build().plan()


@pytest.mark.parametrize("retry", [Retry.by_key(), Retry.in_place()])
def test_a_retry_is_refused(retry: Retry) -> None:
    with pytest.raises(
        UnsupportedOperation,
        match="look-up cannot run on Spark in batch: it asks for the wall clock.* no on_error=Retry",
    ):
        check_runnable(plan(retry))


def test_other_answers_run() -> None:
    for answer in ("fail", "skip", "dead_letter", "continue"):
        check_runnable(plan(answer))
