"""The parts of the chaos runs without Kafka: the schedule, the model, and a judge that has to reject bad histories."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import count, islice
from typing import Any

import pytest

from streamapp import StreamsBuilder, StreamsConfig, TopologyTestDriver, Windowed

from .chaos.application import EXACT, FREE, GONE, INPUTS, SINKS, TABLES, describe
from .chaos.schedule import KINDS, steps
from .chaos.traffic import New, closing, draw_record
from .chaos.verdict import judge_chaos
from .history import Event, only
from .watch import text

FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def good() -> list[Event]:
    """The history of a run without faults: the whole topology in one partition, in a `TopologyTestDriver`."""
    config = StreamsConfig(
        processing_exception_handler="continue",
        deserialization_exception_handler="continue",
        dead_letter_queue_topic="x-dead",
    )
    builder = StreamsBuilder(config)
    describe(builder, "x")
    draw, numbers = random.Random(1), count(1)
    records = [r for r in (draw_record(next(numbers), draw) for _ in range(700)) if not r.ahead]
    history: list[Event] = [_event("run", prefix="x", stages=[], guarantee="exactly_once_v2")]
    offsets = dict.fromkeys(INPUTS, 0)
    numbers_told: Counter[str] = Counter()
    with TopologyTestDriver(builder.build()) as driver:
        for turn, batch in enumerate([records, closing(1, numbers), closing(2, numbers)]):
            driver.advance_wall_clock_time(2_000 * turn)
            for record in batch:
                timestamp = FIRST_MS + record.event_ms
                sent = _sent(record, offsets[record.topic], timestamp)
                history.append(sent)
                offsets[record.topic] += 1
                if record.topic == "asked":
                    history.append(_tell(sent, numbers_told))
                else:
                    driver.pipe_raw(f"x-{record.topic}", record.key.encode(), record.value, timestamp)
        for letter in driver.produced["x-dead"]:
            said = {name.removeprefix("__streams.errors."): content for name, content in letter.headers}
            source = _where(text(said["topic"]), int(text(said["partition"])), int(text(said["offset"])))
            history.append(_event("dead", **source, error=text(said["message"])))
        for name in (*EXACT, *FREE):
            for offset, row in enumerate(driver.produced[f"x-{name}"]):
                where = _where(f"x-{name}", 0, offset)
                history.append(_event("output", **where, key=text(row.key), value=text(row.value)))
                if name == "counted":
                    value = f"{text(row.key)} {text(row.value)}"
                    history.append(_event("output", **_where("x-seen", 0, offset), key="", value=value))
        for key, value in driver.store("pending").all():
            history.append(_event("pending", key=key, value=value))
        for name in TABLES:
            history.append(_event("table", source=name, rows=dict(map(_row, driver.store(name).all()))))
    # No broker was here to refuse the result of a record that is ahead of the clock.
    ahead = New("copies", "k1", b'{"n": 7, "ahead": true}', 0, ahead=True)
    history.append(_sent(ahead, offsets["copies"], FIRST_MS))
    history.append(_event("dead", **_where("x-copies", 0, offsets["copies"]), error="ahead"))
    history.append(_event("drained"))
    history.append(_event("wait", what="all is committed", seconds=180, ok=True))
    return history


def _event(event: str, **fields: Any) -> Event:
    return {"t": 0.0, "event": event, **fields}


def _where(topic: str, partition: int, offset: int) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "offset": offset}


def _sent(record: New, offset: int, timestamp: int) -> Event:
    where = _where(f"x-{record.topic}", 0, offset)
    return _event("sent", **where, key=record.key, value=text(record.value), timestamp=timestamp)


def _tell(sent: Event, numbers: Counter[str]) -> Event:
    """The result of the agent that has a table, or the dead letter, because the driver has no agents."""
    try:
        number = json.loads(sent["value"])["n"] + 0
    except (ValueError, TypeError, RecursionError) as exc:
        where = {name: sent[name] for name in ("topic", "partition", "offset")}
        return _event("dead", **where, error=str(exc))
    numbers[sent["key"]] += 1
    where = _where("x-told", 0, sent["offset"])
    return _event("output", **where, key=sent["key"], value=f"{number}={numbers[sent['key']]}")


def _row(found: tuple[Any, ...]) -> tuple[str, str]:
    """A row as the views show it, without timestamp. The bounds of a window follow its key."""
    key, value = found[:2]
    if isinstance(key, Windowed):
        return f"{key.key}@{key.start}-{key.end}", value
    return key, value[0]


def broken(history: list[Event]) -> set[str]:
    return {verdict.invariant for verdict in judge_chaos(history) if not verdict.ok}


def outputs(history: list[Event], sink: str) -> list[Event]:
    return [e for e in only(history, "output") if e["topic"] == f"x-{sink}"]


def test_a_run_without_faults_is_accepted(good: list[Event]) -> None:
    assert [v for v in judge_chaos(good) if not v.ok] == []
    assert {v.invariant for v in judge_chaos(good)} >= {
        *SINKS,
        *(f"table {t}" for t in TABLES),
        "dead letters",
    }


@pytest.mark.parametrize("sink", SINKS)
def test_every_sink_has_results(sink: str, good: list[Event]) -> None:
    assert len(outputs(good, sink)) > 20


@pytest.mark.parametrize("sink", sorted({*SINKS} - {"both", "foreign", "per-ref"}))
def test_a_lost_a_doubled_and_a_wrong_result_are_found(sink: str, good: list[Event]) -> None:
    row = outputs(good, sink)[7]
    assert broken([e for e in good if e is not row]) == {sink}
    assert broken([*good, {**row, "offset": row["offset"] + 0.5}]) == {sink}
    assert broken([{**e, "key": "nobody"} if e is row else e for e in good]) == {sink}


@pytest.mark.parametrize("sink", ["both", "foreign", "per-ref"])
def test_a_table_whose_last_change_is_lost_or_that_has_a_row_of_nothing_is_found(
    sink: str, good: list[Event]
) -> None:
    latest = {e["key"]: e for e in outputs(good, sink)}
    row = next(e for e in latest.values() if e["value"] != GONE)
    assert broken([e for e in good if e is not row]) == {sink}
    value = "-1" if sink == "per-ref" else "1|999999"
    assert broken([*good, {**row, "offset": -1, "value": value}]) == {sink}


@pytest.mark.parametrize("sink", ["plain", "counted", "tumbling", "sliding", "session", "told"])
def test_results_of_one_partition_in_another_order_are_found(sink: str, good: list[Event]) -> None:
    one, other = outputs(good, sink)[3:5]
    swapped = [
        {**e, "offset": (other if e is one else one)["offset"]} if e is one or e is other else e for e in good
    ]
    assert broken(swapped) == {sink}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_lacks_a_row_or_has_an_old_one_is_found(table: str, good: list[Event]) -> None:
    (found,) = [e for e in only(good, "table") if e["source"] == table]
    key = sorted(found["rows"])[0]
    without = {k: v for k, v in found["rows"].items() if k != key}
    for rows in (without, {**found["rows"], key: "0"}):
        assert broken([{**e, "rows": rows} if e is found else e for e in good]) == {f"table {table}"}


def test_a_dead_letter_that_is_missing_doubled_or_of_a_good_record_is_found(good: list[Event]) -> None:
    letter = only(good, "dead")[-1]
    assert broken([e for e in good if e is not letter]) == {"dead letters"}
    assert broken([*good, letter]) == {"dead letters"}
    assert broken([*good, {**letter, "offset": 0}]) == {"dead letters"}


def test_an_event_that_no_operator_saw_is_found_by_all_of_them(good: list[Event]) -> None:
    last = only(good, "sent")[-1]
    unseen = _event(
        "sent", **_where("x-events", 0, 999_999), key="k1", value='{"n": 999999}', timestamp=last["timestamp"]
    )
    assert broken([*good, unseen]) >= {
        "counted",
        "groups",
        "looked-up",
        "batched",
        "table counts",
    }


@pytest.mark.parametrize(
    ("event", "invariant"),
    [
        (_event("wait", what="all are ready", seconds=120, ok=False), "I10"),
        (_event("exit", worker="w1", code=1, wanted="to go on", said=False, log="MemoryError"), "I13"),
        (_event("exit", worker="w1", code=1, wanted="clean", said=True), "I15"),
    ],
)
def test_what_the_fault_matrix_refuses_is_refused_here(
    event: Event, invariant: str, good: list[Event]
) -> None:
    assert broken([*good, event]) == {invariant}


def test_a_run_that_ended_early_is_refused(good: list[Event]) -> None:
    assert broken([e for e in good if e["event"] != "drained"]) == {"drained"}


def test_a_seed_gives_the_same_schedule_again_and_another_seed_another() -> None:
    first = [*islice(steps(7, 3, 3), 50)]
    assert first == [*islice(steps(7, 3, 3), 50)]
    assert first != [*islice(steps(8, 3, 3), 50)]


@pytest.mark.parametrize("workers", [1, 3])
def test_each_kind_of_fault_comes_in_every_five_steps(workers: int) -> None:
    drawn = [*islice(steps(7, workers, 3), 50)]
    for begin in range(0, 50, len(KINDS)):
        assert {faults[0].kind for faults in drawn[begin : begin + len(KINDS)]} == {*KINDS}


def test_faults_that_come_together_are_of_other_kinds_and_workers() -> None:
    together = [faults for faults in islice(steps(7, 3, 3), 200) if len(faults) == 2]
    assert together
    for one, other in together:
        assert one.kind != other.kind
        assert one.worker != other.worker or not one.worker
        assert {one.kind, other.kind} not in ({"stop", "broker"}, {"stop", "quota"})
