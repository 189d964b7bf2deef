"""The contents that topics and tables must have at the end, computed from the logs of the input topics."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from streamapp import StreamsBuilder, TopologyTestDriver

from ..history import Event
from ..watch import text
from .application import EXACT, GONE, INPUTS, JOIN_MS, describe_exact, group

__all__ = ["Inputs", "Sent", "exact_outputs", "final_tables", "pairs", "seen", "told"]


class Sent(NamedTuple):
    """A record that the application has to process."""

    partition: int
    offset: int
    key: str
    row: dict[str, Any] | None
    timestamp: int
    value: str

    @property
    def number(self) -> int:
        assert self.row is not None
        return int(self.row["n"])


class Inputs:
    """The input by topic, in the order of partition and offset, and the places of records that must be dead letters."""

    def __init__(self, events: Iterable[Event], prefix: str) -> None:
        self.by_topic: dict[str, list[Sent]] = {name: [] for name in INPUTS}
        self.hostile: set[tuple[str, int, int]] = set()
        for e in sorted(events, key=lambda each: (each["topic"], each["partition"], each["offset"])):
            name = e["topic"].removeprefix(f"{prefix}-")
            row = None if e["value"] == "" else _parsed(e["value"])
            if e["value"] != "" and (row is None or "ahead" in row):
                self.hostile.add((e["topic"], e["partition"], e["offset"]))
            else:
                where = e["partition"], e["offset"]
                self.by_topic[name].append(Sent(*where, e["key"], row, e["timestamp"], e["value"]))

    def last_rows(self, name: str) -> dict[str, dict[str, Any]]:
        """The rows of a table at the end."""
        rows = {each.key: each.row for each in self.by_topic[name]}
        return {key: row for key, row in rows.items() if row is not None}

    def numbers(self, name: str) -> dict[str, set[int]]:
        """The numbers of all rows that a key has had."""
        found: dict[str, set[int]] = defaultdict(set)
        for each in self.by_topic[name]:
            if each.row is not None:
                found[each.key].add(each.number)
        return found


def _parsed(value: str) -> dict[str, Any] | None:
    try:
        row = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("n"), int) else None


def exact_outputs(inputs: Inputs) -> dict[str, dict[int, list[tuple[str, str]]]]:
    """Sink -> partition -> results in order. A `TopologyTestDriver` runs the same operators for each partition."""
    found: dict[str, dict[int, list[tuple[str, str]]]] = {name: {} for name in EXACT}
    for partition in sorted({each.partition for each in inputs.by_topic["events"]}):
        builder = StreamsBuilder()
        describe_exact(builder, "x")
        with TopologyTestDriver(builder.build()) as driver:
            closing = 0
            for each in inputs.by_topic["events"]:
                if each.partition != partition:
                    continue
                assert each.row is not None
                if each.row.get("closing", 0) > closing:
                    closing = each.row["closing"]
                    # By the wall clock, results on window close come at most once a second.
                    driver.advance_wall_clock_time(2_000)
                driver.pipe_raw("x-events", each.key.encode(), each.value.encode(), each.timestamp)
            for name in EXACT:
                rows = driver.produced.get(f"x-{name}", [])
                found[name][partition] = [(text(row.key), text(row.value)) for row in rows]
    return found


def pairs(inputs: Inputs) -> Counter[tuple[str, str]]:
    """Each event with each record of ``others`` that has its key, and is within the time of the join.

    No record is late for this join, so the order of the records does not matter.
    """
    others: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for each in inputs.by_topic["others"]:
        others[each.key].append((each.timestamp, each.number))
    return Counter(
        (each.key, f"{each.number}+{number}")
        for each in inputs.by_topic["events"]
        for timestamp, number in others[each.key]
        if abs(timestamp - each.timestamp) <= JOIN_MS
    )


def told(inputs: Inputs) -> dict[int, list[tuple[str, str]]]:
    """Partition -> the records of the topic ``asked`` in order, each with its number among those of its key."""
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    numbers: Counter[str] = Counter()
    for each in inputs.by_topic["asked"]:
        numbers[each.key] += 1
        found[each.partition].append((each.key, f"{each.number}={numbers[each.key]}"))
    return dict(found)


def seen(counted: dict[int, list[tuple[str, str]]]) -> Counter[tuple[str, str]]:
    """Each result of the sink ``counted`` once. The results that an agent gives to a sink have no key."""
    return Counter(("", f"{key} {value}") for rows in counted.values() for key, value in rows)


def final_tables(
    inputs: Inputs, exact: dict[str, dict[int, list[tuple[str, str]]]]
) -> dict[str, dict[str, str]]:
    """Store -> key -> value at the end. The key of a windowed row has the bounds of the window."""
    left, right, refs = (inputs.last_rows(name) for name in ("left", "right", "refs"))
    groups: dict[str, tuple[int, int, int]] = {}
    for each in inputs.by_topic["events"]:
        count, total, bits = groups.get(group(each.number), (0, 0, 0))
        groups[group(each.number)] = count + 1, total + each.number, bits ^ each.number
    had = {each.row["ref"] for each in inputs.by_topic["left"] if each.row is not None}
    now = Counter(row["ref"] for row in left.values())
    return {
        "counts": {key: value for rows in exact["counted"].values() for key, value in rows},
        "tumbling": dict(_windows(exact["tumbling"])),
        "session": dict(_windows(exact["session"])),
        "groups": {key: ":".join(map(str, each)) for key, each in groups.items()},
        "both": {key: f"{row['n']}|{right[key]['n']}" for key, row in left.items() if key in right},
        "foreign": {
            key: f"{row['n']}|{refs[row['ref']]['n']}" for key, row in left.items() if row["ref"] in refs
        },
        "per-ref": {ref: str(now[ref]) for ref in had},
    }


def _windows(by_partition: dict[int, list[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    last: dict[str, str] = {}
    for rows in by_partition.values():
        for key, value in rows:
            bounds, _, content = value.partition("=")
            last[f"{key}@{bounds}"] = content
    yield from ((key, value) for key, value in last.items() if value != GONE)
