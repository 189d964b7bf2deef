"""The right outputs of the workloads, computed from their input in a few lines of plain Python.

A model sees the records of one input partition in the order of their offsets, and gives the outputs of each record.
Every output value names the input that caused the output, so no two outputs of different inputs are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = [
    "GRACE_MS",
    "GROUPS",
    "MODELS",
    "PARKS",
    "POISON",
    "WINDOW_MS",
    "Input",
    "Model",
    "Output",
    "window_row",
]

WINDOW_MS, GRACE_MS, GROUPS = 10_000, 5_000, 10
PARKS = ("retried", "desk", "staged")
"""Models whose records may wait for a retry after their offsets are committed. Only the records of one key keep their
order."""
POISON = "poison"
"""Values that begin so cannot be processed. If the handler's answer is "continue", they become dead letters."""


class Input(NamedTuple):
    offset: int
    key: str
    value: str
    timestamp: int


class Output(NamedTuple):
    key: str
    value: str


Model = Callable[[list[Input]], Iterator[tuple[int, Output]]]
"""A function that gives outputs in order, each with the offset of the input that caused the output."""


def sound(records: list[Input]) -> list[Input]:
    return [record for record in records if not record.value.startswith(POISON)]


def copy(records: list[Input]) -> Iterator[tuple[int, Output]]:
    """Passes two of three records on, without state."""
    for record in sound(records):
        if int(record.value) % 3:
            yield record.offset, Output(record.key, record.value)


def count(records: list[Input]) -> Iterator[tuple[int, Output]]:
    counts: dict[str, int] = {}
    for record in sound(records):
        counts[record.key] = counts.get(record.key, 0) + 1
        yield record.offset, Output(record.key, f"{counts[record.key]}:{record.value}")


def window(records: list[Input]) -> Iterator[tuple[int, Output]]:
    """Counts in tumbling windows. Records that come after the grace period are dropped."""
    counts: dict[tuple[str, int], int] = {}
    stream_time = -1
    for record in sound(records):
        stream_time = max(stream_time, record.timestamp)
        start = record.timestamp - record.timestamp % WINDOW_MS
        if start + WINDOW_MS > stream_time - GRACE_MS:
            counts[record.key, start] = counts.get((record.key, start), 0) + 1
            yield record.offset, Output(record.key, f"{start}:{counts[record.key, start]}:{record.value}")


def window_row(key: str, value: str) -> Output:
    """The row of the table that belongs to an output of `window`."""
    start, _, count = value.partition(":")
    return Output(f"{key}@{start}", count)


def final(records: list[Input]) -> Iterator[tuple[int, Output]]:
    """Gives one output for each window of `window`, when the window is closed."""
    open_windows: dict[tuple[str, int], str] = {}
    stream_time = -1
    updates = dict(window(records))
    for record in sound(records):
        stream_time = max(stream_time, record.timestamp)
        if record.offset in updates:
            key, value = updates[record.offset]
            open_windows[key, int(value.split(":")[0])] = value
        for key, start in sorted(open_windows, key=lambda each: each[1]):
            if start + WINDOW_MS <= stream_time - GRACE_MS:
                yield record.offset, Output(key, open_windows.pop((key, start)))


def join(records: list[Input]) -> Iterator[tuple[int, Output]]:
    """Joins with a table that has a row for each key, and never changes."""
    for record in sound(records):
        yield record.offset, Output(record.key, f"{record.value}:row-of-{record.key}")


def retried(records: list[Input]) -> Iterator[tuple[int, Output]]:
    """Passes every record on, without state. The number of attempts does not matter."""
    for record in sound(records):
        yield record.offset, Output(record.key, record.value)


def regroup(records: list[Input]) -> Iterator[tuple[int, Output]]:
    """The first half of a count by another key: gives the records of the repartition topic."""
    for record in sound(records):
        yield record.offset, Output(f"g{int(record.value) % GROUPS}", record.value)


MODELS: dict[str, Model] = {
    "copy": copy,
    "count": count,
    "window": window,
    "final": final,
    "join": join,
    "regroup": regroup,
    "retried": retried,
    "desk": retried,
    "staged": retried,
}
