"""Judges the history of a chaos run. The same history always gives the same verdicts.

The general invariants (I10, I13, I15) are those of the fault matrix. The results are compared here, topic by topic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from ..history import Event, only
from ..judge import Verdict, judge
from .application import GONE, SINKS
from .expected import Inputs, exact_outputs, final_tables, pairs, seen, told

__all__ = ["judge_chaos"]

Row = tuple[str, str]
_UNORDERED = {"tumbling-final", "hopping-final"}
"""Sinks whose order is not promised: one record may close several windows, and closing also depends on the clock."""


def judge_chaos(history: Iterable[Event]) -> list[Verdict]:
    """A verdict for each general invariant, each output topic, each table and the dead letters."""
    events = list(history)
    general = judge(e for e in events if e["event"] not in ("sent", "output", "table", "dead"))
    if not only(events, "drained"):
        return [
            *general,
            Verdict("drained", False, "the run ended before everything was worked off: see above"),
        ]
    prefix = events[0]["prefix"]
    inputs = Inputs(only(events, "sent"), prefix)
    outputs: dict[str, dict[int, list[Row]]] = {name: defaultdict(list) for name in SINKS}
    for e in sorted(only(events, "output"), key=lambda each: each["offset"]):
        outputs[e["topic"].removeprefix(f"{prefix}-")][e["partition"]].append((e["key"], e["value"]))
    exact = {**exact_outputs(inputs), "told": told(inputs)}
    tables = final_tables(inputs, exact)
    pending = {e["key"]: e["value"] for e in only(events, "pending")}
    found: dict[str, list[str]] = {"input": [] if inputs.by_topic["events"] else ["no event was sent"]}
    for name in SINKS:
        rows = outputs[name]
        every = [row for partition in sorted(rows) for row in rows[partition]]
        if name in exact:
            found[name] = [*_exact(exact[name], rows, ordered=name not in _UNORDERED)]
        elif name == "seen":
            found[name] = [*_counted(seen(exact["counted"]), Counter(every))]
        else:
            found[name] = [*_CHECKS[name](inputs, tables, every, pending)]
    for e in only(events, "table"):
        found[f"table {e['source']}"] = [*_different(e["rows"], tables[e["source"]])]
    found["dead letters"] = [*_unaccounted(inputs, only(events, "dead"))]
    return [*general, *(Verdict(name, not what, _shortened(what)) for name, what in found.items())]


def _shortened(problems: list[str]) -> str:
    return "; ".join([*problems[:4], *([f"and {len(problems) - 4} more"] if problems[4:] else [])])


def _counted(expected: Counter[Row], seen: Counter[Row]) -> Iterator[str]:
    """Names each row that is lost, doubled or wrong."""
    for row in sorted(expected.keys() | seen.keys()):
        if not expected[row]:
            yield f"{row} is wrong: nothing that was sent gives it"
        elif seen[row] < expected[row]:
            yield f"{row} is lost: {seen[row]} of {expected[row]} times there"
        elif seen[row] > expected[row]:
            yield f"{row} is doubled: {seen[row]} times there, and not {expected[row]}"


def _exact(expected: dict[int, list[Row]], seen: dict[int, list[Row]], *, ordered: bool) -> Iterator[str]:
    for partition in sorted(expected.keys() | seen.keys()):
        wanted, got = expected.get(partition, []), seen.get(partition, [])
        problems = [*_counted(Counter(wanted), Counter(got))]
        yield from (f"{problem} (partition {partition})" for problem in problems)
        if ordered and not problems and wanted != got:
            at = next(n for n, (one, other) in enumerate(zip(wanted, got, strict=True)) if one != other)
            yield f"partition {partition} has {got[at]} where {wanted[at]} belongs: the order is wrong"


def _groups(inputs: Inputs, tables: dict[str, dict[str, str]], rows: list[Row], _: object) -> Iterator[str]:
    """Counts go up by one, from one to the right end. So each record counts exactly once, in any order."""
    by_key: dict[str, list[str]] = defaultdict(list)
    for key, value in rows:
        by_key[key].append(value)
    for key, end in tables["groups"].items():
        values = by_key.pop(key, [])
        counts = [int(value.split(":")[0]) for value in values]
        broken = [(one, other) for one, other in pairwise([0, *counts]) if other != one + 1]
        if broken:
            yield f"{key}: {broken[0][1]} comes after {broken[0][0]}"
        if not values or values[-1] != end:
            yield f"{key} ends with {values[-1:]}, and not with {end}"
    yield from (f"{key} was never sent" for key in by_key)


def _pairs(inputs: Inputs, _: object, rows: list[Row], __: object) -> Iterator[str]:
    return _counted(pairs(inputs), Counter(rows))


def _looked_up(inputs: Inputs, _: object, rows: list[Row], __: object) -> Iterator[str]:
    """Each event once, with a row that its key has had, or none."""
    had = inputs.numbers("left")
    events = Counter((each.key, str(each.number)) for each in inputs.by_topic["events"])
    yield from _counted(events, Counter((key, value.partition("|")[0]) for key, value in rows))
    for key, value in rows:
        row = value.partition("|")[2]
        if row != "None" and int(row) not in had[key]:
            yield f"{(key, value)} has a row that {key} never had"


def _both(inputs: Inputs, tables: dict[str, dict[str, str]], rows: list[Row], _: object) -> Iterator[str]:
    left, right = inputs.numbers("left"), inputs.numbers("right")
    possible = {key: (numbers, right[key]) for key, numbers in left.items()}
    return _table_rows(rows, tables["both"], possible)


def _foreign(inputs: Inputs, tables: dict[str, dict[str, str]], rows: list[Row], _: object) -> Iterator[str]:
    left, refs = inputs.numbers("left"), inputs.numbers("refs")
    any_ref = set().union(*refs.values())
    return _table_rows(rows, tables["foreign"], {key: (numbers, any_ref) for key, numbers in left.items()})


def _table_rows(
    rows: list[Row], end: dict[str, str], possible: dict[str, tuple[set[int], set[int]]]
) -> Iterator[str]:
    """Each result is of two rows that their keys have had. The table at the end has the last result of each key."""
    for key, value in rows:
        if value == GONE:
            continue
        one, other = map(int, value.split("|"))
        left, right = possible.get(key, (set(), set()))
        if one not in left or other not in right:
            yield f"{(key, value)} is of rows that there never were"
    last = {key: value for key, value in dict(rows).items() if value != GONE}
    yield from _different(last, end)


def _per_ref(_: object, tables: dict[str, dict[str, str]], rows: list[Row], __: object) -> Iterator[str]:
    """Counts are never below zero, and change by at most one. The table at the end has the last count of each key."""
    counts: dict[str, int] = {}
    for key, value in rows:
        if int(value) < 0 or abs(int(value) - counts.get(key, 0)) > 1:
            yield f"{key} goes from {counts.get(key, 0)} to {value}"
        counts[key] = int(value)
    yield from _different(dict(rows), tables["per-ref"])


def _batched(inputs: Inputs, _: object, rows: list[Row], pending: dict[str, str]) -> Iterator[str]:
    """Each number is exactly once in the results and the store together."""
    events = Counter((each.key, str(each.number)) for each in inputs.by_topic["events"])
    seen = Counter((key, n) for key, numbers in [*rows, *pending.items()] for n in numbers.split(","))
    return _counted(events, seen)


def _copied(inputs: Inputs, _: object, rows: list[Row], __: object) -> Iterator[str]:
    return _counted(
        Counter((each.key, str(each.number)) for each in inputs.by_topic["copies"]), Counter(rows)
    )


_CHECKS = {
    "groups": _groups,
    "pairs": _pairs,
    "looked-up": _looked_up,
    "both": _both,
    "foreign": _foreign,
    "per-ref": _per_ref,
    "batched": _batched,
    "copied": _copied,
}


def _different(rows: dict[str, str], expected: dict[str, str]) -> Iterator[str]:
    for key in sorted(rows.keys() | expected.keys()):
        if rows.get(key) != expected.get(key):
            yield f"{key} is {rows.get(key)}, and not {expected.get(key)}"


def _unaccounted(inputs: Inputs, dead: list[Event]) -> Iterator[str]:
    """Each record that cannot be processed is exactly one dead letter, and no other record is a dead letter."""
    letters = Counter((e["topic"], e["partition"], e["offset"]) for e in dead)
    why = {(e["topic"], e["partition"], e["offset"]): e["error"] for e in dead}
    for where in sorted(inputs.hostile | letters.keys()):
        if where not in inputs.hostile:
            yield f"{where} can be processed, and is in the dead-letter topic: {why[where]}"
        elif letters[where] != 1:
            yield f"{where} is {letters[where]} times in the dead-letter topic"
