"""Judges a history: gives a verdict for each invariant. The same history always gives the same verdicts.

docs/faults.md describes the invariants:

    I1  no loss: every input below the committed offset is in the output, or in the dead-letter topic
    I2  no duplicates, with exactly_once_v2
    I3  changelog and views are the aggregate of the input, and no output shows another state
    I4  changelog and views show the same table
    I5  order: outputs of one input partition keep their order in each output partition
    I6  contiguous commit: all outputs of committed offsets are there, and no committed offset moves back
    I10 liveness: after the fault, everything moves again, without help
    I11 accounting: each record that cannot be processed is a dead letter, once
    I13 honest failure: a process that ends says why; none is ready for long, without a reason, while nothing moves
    I14 query truth: an answer is a value that the key has had; no existing row is missing
    I15 clean stop: after SIGTERM, a worker ends with exit code 0
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .history import Event, only
from .models import MODELS, PARKS, POISON, Input, Output, window_row

__all__ = ["Verdict", "judge"]

_IDLE_SECONDS = 45.0
"""The longest time that a worker may say that it is ready, and give no reason, while records wait and nothing moves."""


class Verdict(NamedTuple):
    invariant: str
    ok: bool
    detail: str = ""


Partition = tuple[str, int]


@dataclass
class _Stage:
    """One step of a workload: the expected outputs by input partition, and the outputs that came."""

    source: str
    model: str
    sink: str
    expected: dict[int, list[tuple[int, Output]]]
    outputs: dict[int, list[tuple[int, Output]]]
    """By output partition: (offset, output)."""

    def __post_init__(self) -> None:
        self.place: dict[Output, tuple[int, int]] = {}
        """Output -> (input partition, the place of the output among those of this partition)."""
        for partition, outputs in self.expected.items():
            for index, (_, output) in enumerate(outputs):
                self.place.setdefault(output, (partition, index))
        self.wanted = Counter(output for outputs in self.expected.values() for _, output in outputs)
        self.seen = Counter(output for rows in self.outputs.values() for _, output in rows)


def judge(history: Iterable[Event]) -> list[Verdict]:
    """A verdict for each invariant of which the history has evidence. A failed verdict has the problems as detail."""
    events = list(history)
    run = events[0]
    assert run["event"] == "run", "a history begins with what was run"
    stages = [_stage(events, *stage) for stage in run["stages"]]
    exactly_once = run["guarantee"] == "exactly_once_v2"
    committed = _last_committed(events)
    findings: dict[str, list[str]] = {}

    def check(invariant: str, problems: Iterable[str]) -> None:
        findings.setdefault(invariant, []).extend(problems)

    for stage in stages:
        if stage.model == "desk":
            check("I11", _on_the_desk(stage, events, exactly_once))
            continue
        check("I1", _lost(stage, committed))
        if exactly_once:
            check("I2", _doubled(stage))
        check("I3", _wrong(stage))
        check("I5", _disordered(stage, {key for e in only(events, "unordered") for key in e["keys"]}))
        if stage.model not in PARKS:
            check("I6", _ahead(stage, only(events, "committed")))
        else:
            check("I11", _in_one_place(stage, events, exactly_once))
    if tables := only(events, "table"):
        check("I3", _table_differs(stages[-1], tables))
        check("I4", _tables_differ(tables))
    if waits := only(events, "wait"):
        check("I10", (f"{e['what']}: not within {e['seconds']} s" for e in waits if not e["ok"]))
    poisoned = any(e["value"].startswith(POISON) for e in only(events, "sent"))
    if poisoned and run.get("dead_letters") and not any(stage.model == "desk" for stage in stages):
        check("I11", _unaccounted(events, committed, exactly_once))
    exits = only(events, "exit")
    if failing := [e for e in exits if e["wanted"] != "clean"]:
        check("I13", _dishonest(failing))
    if ready := only(events, "ready"):
        check("I13", _idle(ready))
    if reads := only(events, "read"):
        check("I14", _untrue(stages[-1], reads))
    if clean := [e for e in exits if e["wanted"] == "clean"]:
        check("I15", (f"{e['worker']} ended with {e['code']} after SIGTERM" for e in clean if e["code"] != 0))
    return [
        Verdict(
            name, not found, "; ".join([*found[:3], *([f"and {len(found) - 3} more"] if found[3:] else [])])
        )
        for name, found in sorted(findings.items(), key=lambda item: int(item[0][1:]))
    ]


def _stage(events: list[Event], source: str, model: str, sink: str) -> _Stage:
    inputs: dict[int, list[Input]] = defaultdict(list)
    expired = {
        (e["partition"], offset)
        for e in only(events, "expired")
        if e["topic"] == source
        for offset in range(e["first"], e["end"])
    }
    """The offsets that were deleted before anybody could read them."""
    for kind in ("sent", "output"):
        for e in only(events, kind):
            if e["topic"] == source and (e["partition"], e["offset"]) not in expired:
                inputs[e["partition"]].append(Input(e["offset"], e["key"], e["value"], e.get("timestamp", 0)))
    outputs: dict[int, list[tuple[int, Output]]] = defaultdict(list)
    for e in only(events, "output"):
        if e["topic"] == sink:
            outputs[e["partition"]].append((e["offset"], Output(e["key"], e["value"])))
    return _Stage(
        source,
        model,
        sink,
        {p: list(MODELS[model](sorted(rows))) for p, rows in inputs.items()},
        {p: sorted(rows) for p, rows in outputs.items()},
    )


def _last_committed(events: list[Event]) -> dict[str, int]:
    samples = only(events, "committed")
    return samples[-1]["offsets"] if samples else {}


def _lost(stage: _Stage, committed: dict[str, int]) -> Iterator[str]:
    for partition, outputs in stage.expected.items():
        end = committed.get(f"{stage.source}-{partition}", 0)
        for offset, output in outputs:
            if offset < end and not stage.seen[output]:
                yield f"{output} is missing: caused by offset {offset} of {stage.source}-{partition}, {end} is committed"


def _doubled(stage: _Stage) -> Iterator[str]:
    for output, times in stage.seen.items():
        if times > (wanted := stage.wanted[output]) > 0:
            yield f"{output} is in {stage.sink} {times} times, and not {wanted}"


def _wrong(stage: _Stage) -> Iterator[str]:
    for output in stage.seen:
        if output not in stage.place:
            yield f"{output} in {stage.sink} is not an answer to what was sent"


def _disordered(stage: _Stage, without: set[str]) -> Iterator[str]:
    """Names outputs that come after a later output of the same input partition.

    ``without`` are keys with records that went through retry topics, because such keys give up the order.
    """
    for sink_partition, rows in stage.outputs.items():
        newest: dict[tuple[int, str], tuple[int, Output]] = {}
        known: set[Output] = set()
        for _, output in rows:
            # With at_least_once, work is repeated from a commit on. So only the first copy of an output counts.
            if output in known or output not in stage.place or output.key in without:
                continue
            known.add(output)
            partition, turn = stage.place[output]
            # While a key waits for a retry, other keys pass it.
            line = partition, output.key if stage.model in PARKS else ""
            before, earlier = newest.get(line, (-1, output))
            if turn < before and _cause(stage, output) != _cause(stage, earlier):
                yield f"{output} comes after {earlier} in {stage.sink}-{sink_partition}"
            newest[line] = max(newest.get(line, (-1, output)), (turn, output))


def _cause(stage: _Stage, output: Output) -> tuple[int, int]:
    partition, turn = stage.place[output]
    return partition, stage.expected[partition][turn][0]


def _ahead(stage: _Stage, samples: list[Event]) -> Iterator[str]:
    appeared = {
        output: (f"{stage.sink}-{partition}", offset)
        for partition, rows in stage.outputs.items()
        for offset, output in reversed(rows)
    }
    before: dict[str, int] = {}
    for sample in samples:
        for partition, outputs in stage.expected.items():
            name = f"{stage.source}-{partition}"
            end = sample["offsets"].get(name, 0)
            if end < before.get(name, 0):
                yield f"the committed offset of {name} went back from {before[name]} to {end} at {sample['t']} s"
            before[name] = end
            for offset, output in outputs:
                where, at = appeared.get(output, ("nowhere", 0))
                if offset < end and at >= sample["ends"].get(where, 0):
                    yield f"{end} of {name} was committed at {sample['t']} s, before {output} was out"
                    break


def _table_differs(stage: _Stage, tables: list[Event]) -> Iterator[str]:
    row = window_row if stage.model == "window" else Output
    expected = dict(row(*output) for outputs in stage.expected.values() for _, output in outputs)
    for table in tables:
        yield from _differences(f"the {table['source']}", table["rows"], "the input", expected)


def _tables_differ(tables: list[Event]) -> Iterator[str]:
    first, *others = tables
    for other in others:
        yield from _differences(other["source"], other["rows"], first["source"], first["rows"])


def _differences(name: str, rows: dict[str, str], against: str, expected: dict[str, str]) -> Iterator[str]:
    for key in sorted(rows.keys() | expected.keys()):
        if rows.get(key) != expected.get(key):
            yield f"{key} is {rows.get(key)} in {name}, {expected.get(key)} by {against}"


def _unaccounted(events: list[Event], committed: dict[str, int], exactly_once: bool) -> Iterator[str]:
    dead = Counter((e["key"], e["value"]) for e in only(events, "dead"))
    poison = [e for e in only(events, "sent") if e["value"].startswith(POISON)]
    sent = Counter((e["key"], e["value"]) for e in poison)
    for e in poison:
        record = e["key"], e["value"]
        if e["offset"] < committed.get(f"{e['topic']}-{e['partition']}", 0) and not dead[record]:
            yield f"the poison record {record} is not in the dead-letter topic"
    for record, times in dead.items():
        if times > sent[record] and (exactly_once or not sent[record]):
            yield f"{record} was sent {sent[record]} times and is {times} times in the dead-letter topic"


def _in_one_place(stage: _Stage, events: list[Event], exactly_once: bool) -> Iterator[str]:
    """At the end each input is an output or a dead letter; with exactly_once_v2, only one of them, once."""
    dead = Counter((e["key"], e["value"]) for e in only(events, "dead"))
    for e in only(events, "sent"):
        record = Output(e["key"], e["value"])
        places = stage.seen[record] + dead[record]
        if not places or (exactly_once and places > 1):
            yield f"{record} is in the output {stage.seen[record]} times, in the dead letters {dead[record]} times"


def _on_the_desk(stage: _Stage, events: list[Event], exactly_once: bool) -> Iterator[str]:
    """Each time that a record went in, the record came out or became a letter; with exactly_once_v2, exactly once.

    Each replayed letter went in again, once.
    """
    inputs, letters = only(events, "sent"), only(events, "letter")
    sent = Counter(Output(e["key"], e["value"]) for e in inputs)
    again = Counter(Output(e["key"], e["value"]) for e in inputs if e.get("again"))
    dead = Counter(Output(e["key"], e["value"]) for e in only(events, "dead"))
    for record in sent.keys() | dead.keys():
        places = stage.seen[record] + dead[record]
        if places < sent[record] or (exactly_once and places > sent[record]):
            yield (
                f"{record} went in {sent[record]} times, is in the output {stage.seen[record]} times, "
                f"in the dead letters {dead[record]} times"
            )
    marked: Counter[Output] = Counter()
    kept: Counter[Output] = Counter()
    for e in letters:
        marked[Output(e["key"], e["value"])] += e["replays"]
        kept[Output(e["key"], e["was"])] += e["state"] != "replayed" or e["value"] != e["was"]
        if e["replays"] > 1:
            yield f"letter {e['letter']} was replayed {e['replays']} times"
    for record in again.keys() | marked.keys():
        if again[record] != marked[record]:
            yield f"{record} was replayed {again[record]} times, and its letters say {marked[record]} times"
    if len(letters) != sum(dead.values()):
        yield f"the desk lists {len(letters)} of {sum(dead.values())} letters"
    for record in sent.keys() - again.keys() | again.keys() & dead.keys():
        places = stage.seen[record] + kept[record]
        if not places or (exactly_once and places > 1):
            yield f"{record} is in the output {stage.seen[record]} times, and {kept[record]} letters of it wait or were changed"


def _dishonest(exits: list[Event]) -> Iterator[str]:
    for e in exits:
        if e["wanted"] == "killed":
            continue
        if e["wanted"] == "to go on":
            yield f"{e['worker']} ended by itself with {e['code']}:\n{e['log']}"
        elif e["code"] is None:
            yield f"{e['worker']} did not end: {e['wanted']!r} was wanted"
        elif e["code"] == 0 or not e["said"]:
            yield f"{e['worker']} ended with {e['code']} without saying {e['wanted']!r}"


def _idle(looks: list[Event]) -> Iterator[str]:
    since: dict[str, float] = {}
    for e in looks:
        if e["status"] != 200 or e.get("reason") or e["moved"] or not e["behind"]:
            since.pop(e["worker"], None)
        elif e["t"] - since.setdefault(e["worker"], e["t"]) > _IDLE_SECONDS:
            yield f"{e['worker']} says it is ready at {e['t']} s, but nothing has moved since {since[e['worker']]} s"
            return


def _untrue(stage: _Stage, reads: list[Event]) -> Iterator[str]:
    had = {key: set[str]() for outputs in stage.expected.values() for _, (key, _) in outputs}
    for outputs in stage.expected.values():
        for _, (key, value) in outputs:
            had[key].add(value)
    for e in reads:
        if e["status"] == 404:
            yield f"{e['key']} was absent at {e['t']} s, but had a value before"
        elif e["status"] == 200 and e["value"] not in had.get(e["key"], ()):
            yield f"{e['key']} was {e['value']} at {e['t']} s, which it never should be"
