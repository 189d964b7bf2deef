"""The judge must reject recorded bad histories, and good histories with random damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .history import Event, read_history
from .judge import judge
from .models import MODELS, Input
from .recorded import BAD, HISTORIES

BAD_FILES = sorted(path for path in HISTORIES.glob("I*.jsonl"))


def broken(history: list[Event]) -> set[str]:
    return {verdict.invariant for verdict in judge(history) if not verdict.ok}


def test_the_good_history_is_accepted_with_every_invariant() -> None:
    verdicts = judge(read_history(HISTORIES / "good.jsonl"))
    assert [v for v in verdicts if not v.ok] == []
    assert [v.invariant for v in verdicts] == [
        *("I1", "I2", "I3", "I4", "I5", "I6", "I10", "I11", "I13", "I14", "I15")
    ]


def test_every_invariant_has_a_bad_history() -> None:
    assert {path.stem for path in BAD_FILES} == BAD.keys()
    accepted = judge(read_history(HISTORIES / "good.jsonl"))
    assert {path.stem.partition("-")[0] for path in BAD_FILES} == {v.invariant for v in accepted}


@pytest.mark.parametrize("path", BAD_FILES, ids=lambda path: path.stem)
def test_a_bad_history_is_rejected_for_what_is_wrong_with_it(path: Path) -> None:
    verdicts = {v.invariant: v for v in judge(read_history(path))}
    verdict = verdicts[path.stem.partition("-")[0]]
    assert not verdict.ok
    assert verdict.detail


def at_least_once(history: list[Event]) -> list[Event]:
    return [{**history[0], "guarantee": "at_least_once"}, *history[1:]]


def test_at_least_once_may_double_but_not_lose_count_twice_or_reorder() -> None:
    read = lambda name: list(read_history(HISTORIES / f"{name}.jsonl"))  # noqa: E731
    assert broken(at_least_once(read("I2-doubled"))) == set()
    assert "I1" in broken(at_least_once(read("I1-lost")))
    assert "I3" in broken(at_least_once(read("I3-counted-twice")))
    assert "I5" in broken(at_least_once(read("I5-swapped")))


@st.composite
def runs(draw: st.DrawFn) -> list[Event]:
    """A right history of one partition, with one of four models and exactly_once_v2."""
    model = draw(st.sampled_from(["copy", "count", "window", "join"]))
    rows = draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40_000)), min_size=4, max_size=20))
    inputs = [Input(n, key, str(n), timestamp) for n, (key, timestamp) in enumerate(rows)]
    outputs = [output for _, output in MODELS[model](inputs)]
    history: list[Event] = [
        {"t": 0, "event": "run", "guarantee": "exactly_once_v2", "stages": [["in", model, "out"]]}
    ]
    for each in inputs:
        history.append({"t": 0, "event": "sent", "topic": "in", "partition": 0, **each._asdict()})
    for offset, output in enumerate(outputs):
        where: dict[str, Any] = {"topic": "out", "partition": 0, "offset": offset}
        history.append({"t": 0, "event": "output", **where, **output._asdict()})
    history.append(
        {"t": 1, "event": "committed", "offsets": {"in-0": len(rows)}, "ends": {"out-0": len(outputs)}}
    )
    return history


@given(runs(), st.data())
def test_any_lost_doubled_or_swapped_output_is_noticed(history: list[Event], data: st.DataObject) -> None:
    assert broken(history) == set()
    places = [n for n, event in enumerate(history) if event["event"] == "output"]
    if len(places) < 2:
        return
    at = data.draw(st.sampled_from(places))
    assert "I1" in broken(history[:at] + history[at + 1 :])
    assert "I2" in broken([*history, {**history[at], "offset": 1_000}])
    other = data.draw(st.sampled_from([place for place in places if place != at]))
    swapped = [dict(event) for event in history]
    swapped[at]["offset"], swapped[other]["offset"] = history[other]["offset"], history[at]["offset"]
    assert "I5" in broken(swapped)


def test_input_that_expired_unread_is_not_missed_and_has_no_answer() -> None:
    inputs = [Input(n, "a", str(n), n) for n in range(6)]
    run: Event = {"t": 0, "event": "run", "guarantee": "exactly_once_v2", "stages": [["in", "count", "out"]]}
    sent = [{"t": 0, "event": "sent", "topic": "in", "partition": 0, **each._asdict()} for each in inputs]
    expired = {"t": 0, "event": "expired", "topic": "in", "partition": 0, "first": 2, "end": 4}
    committed = {"t": 1, "event": "committed", "offsets": {"in-0": 6}, "ends": {"out-0": 6}}

    def answers(read: list[Input]) -> list[Event]:
        outputs = [output for _, output in MODELS["count"](read)]
        where = {"t": 0, "event": "output", "topic": "out", "partition": 0}
        return [{**where, "offset": n, **output._asdict()} for n, output in enumerate(outputs)]

    without = answers([*inputs[:2], *inputs[4:]])
    assert broken([run, *sent, expired, *without, committed]) == set()
    assert "I1" in broken([run, *sent, *without, committed])
    assert "I1" in broken([run, *sent, expired, *without[:-1], committed])
    assert "I3" in broken([run, *sent, expired, *answers(inputs), committed])


def parked_run(outputs: list[tuple[str, str]], dead: list[tuple[str, str]]) -> list[Event]:
    """Records 0 to 5 of the keys a and b in one partition, all committed, with these outputs and dead letters."""
    events: list[Event] = [
        {
            "t": 0.0,
            "event": "run",
            "guarantee": "exactly_once_v2",
            "stages": [["in", "retried", "out"]],
            "dead_letters": True,
        }
    ]
    where: dict[str, Any] = {"t": 0.0, "partition": 0}
    for number in range(6):
        value = "poison-5" if number == 5 else str(number)
        sent = {"topic": "in", "offset": number, "key": "ab"[number % 2], "value": value}
        events.append({**where, "event": "sent", **sent})
    for offset, (key, value) in enumerate(outputs):
        events.append(
            {**where, "event": "output", "topic": "out", "offset": offset, "key": key, "value": value}
        )
    events += [{**where, "event": "dead", "key": key, "value": value} for key, value in dead]
    return [
        *events,
        {"t": 1.0, "event": "committed", "offsets": {"in-0": 6}, "ends": {"out-0": len(outputs)}},
    ]


OVERTAKEN = [("a", "0"), ("a", "2"), ("a", "4"), ("b", "1"), ("b", "3")]
DEAD = [("b", "poison-5")]


def test_a_parked_key_may_be_overtaken_by_others_and_nothing_else() -> None:
    assert broken(parked_run(OVERTAKEN, DEAD)) == set()
    swapped = [*OVERTAKEN[:3], OVERTAKEN[4], OVERTAKEN[3]]
    assert broken(parked_run(swapped, DEAD)) == {"I5"}
    assert broken(parked_run(OVERTAKEN[:-1], DEAD)) == {"I1", "I11"}
    assert broken(parked_run([*OVERTAKEN, ("b", "3")], DEAD)) == {"I2", "I11"}
    assert broken(parked_run(OVERTAKEN, [])) == {"I11"}
    assert broken(parked_run(OVERTAKEN, [*DEAD, ("a", "4")])) == {"I11"}


def test_only_keys_behind_retry_topics_give_up_their_order() -> None:
    def staged(outputs: list[tuple[str, str]], *keys: str) -> list[Event]:
        run, *events = parked_run(outputs, DEAD)
        stages = [["in", "staged", "out"]]
        return [{**run, "stages": stages}, {"t": 0.0, "event": "unordered", "keys": keys}, *events]

    swapped = [*OVERTAKEN[:3], OVERTAKEN[4], OVERTAKEN[3]]
    assert broken(staged(swapped, "b")) == set()
    assert broken(staged(swapped, "a")) == {"I5"}
    assert broken(staged(swapped)) == {"I5"}
    assert broken(staged(swapped[:-1], "b")) == {"I1", "I11"}
    assert broken(staged([*swapped, ("b", "3")], "b")) == {"I2", "I11"}


def desk_run(*changes: Callable[[list[Event]], None]) -> list[Event]:
    """A history of records 0 to 2: 0 comes out, 1 comes out as a replayed letter, and 2 is a letter that waits."""
    run = {
        "t": 0.0,
        "event": "run",
        "guarantee": "exactly_once_v2",
        "stages": [["in", "desk", "out"]],
        "dead_letters": True,
    }
    where: dict[str, Any] = {"t": 0.0, "partition": 0}
    events: list[Event] = [run]
    for offset, value in enumerate("0121"):
        sent = {"event": "sent", "topic": "in", "offset": offset, "key": "k", "value": value}
        events.append({**where, **sent, **({"again": True} if offset == 3 else {})})
    for offset, value in enumerate("01"):
        events.append(
            {**where, "event": "output", "topic": "out", "offset": offset, "key": "k", "value": value}
        )
    for number, value in enumerate("12"):
        events.append({"t": 0.0, "event": "dead", "key": "k", "value": value})
        state = {"state": "open", "replays": 0} if number else {"state": "replayed", "replays": 1}
        events.append(
            {
                "t": 0.0,
                "event": "letter",
                "letter": f"0-{number}",
                "key": "k",
                "value": value,
                "was": value,
                **state,
            }
        )
    for change in changes:
        change(events)
    return events


def _event(kind: str, value: str) -> Callable[[Event], bool]:
    return lambda e: e["event"] == kind and e.get("value") == value


def test_on_the_desk_each_record_is_in_one_place_and_each_replay_is_marked_once() -> None:
    def without(kind: str, value: str) -> Callable[[list[Event]], None]:
        return lambda events: events.remove(next(filter(_event(kind, value), events)))

    def twice(kind: str, value: str) -> Callable[[list[Event]], None]:
        return lambda events: events.append(dict(next(e for e in reversed(events) if _event(kind, value)(e))))

    def marked(events: list[Event]) -> None:
        next(filter(_event("letter", "2"), events)).update(state="replayed", replays=1)

    assert broken(desk_run()) == set()
    for kind, value in (("output", "0"), ("output", "1"), ("dead", "2"), ("letter", "2")):
        assert broken(desk_run(without(kind, value))) == {"I11"}
    for kind, value in (("output", "0"), ("output", "1"), ("dead", "2"), ("sent", "1")):
        assert broken(desk_run(twice(kind, value))) == {"I11"}
    assert broken(desk_run(twice("sent", "1"), twice("output", "1"))) == {
        "I11"
    }  # replayed twice, marked once
    assert broken(desk_run(marked)) == {"I11"}  # marked, and nobody wrote the record
