"""Retries on Spark: no record waits there, so attempts follow each other at once."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import (
    OnError,
    Processor,
    PunctuationType,
    Record,
    Retry,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    UnsupportedOperation,
)
from streamapp.runners.spark.batch_rules import BATCH_RULES
from streamapp.runners.spark.run_order import check_runnable
from streamapp.state.backend import MemoryBackend
from tests.unit.engine.support import commit, feed, task_of
from tests.unit.engine.test_parking import CONFIG, QUICK, Service, described

TEXT = StringSerde()
RECORDS = [("a", "bad", 1), ("a", "2", 2), ("b", "worse", 3), ("b", "4", 4)]


def checked(on_error: OnError) -> None:
    builder = StreamsBuilder(StreamsConfig("app", dead_letter_queue_topic="dead"))
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    stream.map_values(str.upper, on_error=on_error, name="look-up").to("out", value_serde=TEXT)
    check_runnable(builder.build().plan())


@pytest.mark.parametrize("retry", [Retry.by_key, Retry.in_place])
def test_a_record_is_tried_again_at_once_and_all_keep_their_order(retry: Any) -> None:
    service = Service(bad=2, worse=-1)
    task, sent = task_of(described(service, retry(times=2)), config=CONFIG, rules=BATCH_RULES)
    feed(task, "in", RECORDS)
    task.process()
    assert sent.to("out") == [("a", "BAD", 1), ("a", "2", 2), ("b", "4", 4)]
    assert sent.to("dead") == [("b", "worse", 3)]
    assert service.calls == ["bad"] * 3 + ["2"] + ["worse"] * 3 + ["4"]
    letter = next(record for record in sent.records if record.topic == "dead")
    assert dict(letter.headers)["__streamapp.errors.attempt"] == b"3"
    assert task.metrics.drops == {("look-up", "dead_letter"): 1}


def test_a_service_that_is_down_ends_the_run_whatever_the_handler_says() -> None:
    service = Service()
    service.down = ConnectionError("no route")
    config = CONFIG.replace(processing_exception_handler="skip")
    task, sent = task_of(described(service, Retry.by_key()), config=config, rules=BATCH_RULES)
    feed(task, "in", RECORDS)
    with pytest.raises(
        StreamsError, match="a service fails .ConnectionError: no route.; start the run again"
    ):
        task.process()
    assert sent.records == []


def test_records_that_wait_on_workers_are_not_overtaken() -> None:
    backend = MemoryBackend()
    builder = described(Service(bad=-1), Retry.by_key(backoff=QUICK))
    task, _ = task_of(builder, config=CONFIG, backend=backend)
    feed(task, "in", RECORDS[:1])
    task.process()
    commit(task)
    with pytest.raises(StreamsError, match="records wait for a retry in look-up-parked"):
        task_of(builder, config=CONFIG, backend=backend, rules=BATCH_RULES)


def test_attempts_without_an_end_are_refused() -> None:
    with pytest.raises(UnsupportedOperation, match="look-up cannot run on Spark: its Retry has times=None"):
        checked(Retry.by_key(times=None))


def test_answers_run() -> None:
    for answer in ("fail", "skip", "dead_letter", "continue", Retry.by_key(), Retry.in_place()):
        checked(answer)  # type: ignore[arg-type]


@pytest.mark.parametrize("on_error", [None, "skip"])
def test_a_wall_clock_that_a_processor_asks_for_late_ends_the_run_whatever_the_handler_says(
    on_error: Any,
) -> None:
    """The handler dropped each record that asked for the wall clock."""

    class Late(Processor):
        def process(self, record: Record) -> None:
            self.context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, lambda now: None)

    config = CONFIG.replace(processing_exception_handler="skip")
    builder = StreamsBuilder(config)
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).process(Late, name="late", on_error=on_error)
    task, _ = task_of(builder.build(), config=config, rules=BATCH_RULES)
    feed(task, "in", RECORDS)
    with pytest.raises(UnsupportedOperation, match="late cannot run on Spark"):
        task.process()
