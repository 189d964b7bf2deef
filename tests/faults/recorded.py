"""Writes the recorded histories in ``histories/``: one good one, and bad ones that the judge has to reject.

    python -m tests.faults.recorded

The good history is a small run of the workload ``count`` with exactly_once_v2. Each bad history is this run with one
defect, as a wrong system would leave the history. The name of its file begins with the invariant that is broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from .history import Event, only
from .models import MODELS, Input

HISTORIES = Path(__file__).parent / "histories"


def good() -> list[Event]:
    """Twelve records in two partitions, committed in two steps; a kill, a dead letter, reads, tables, a clean stop."""
    events: list[Event] = [
        {
            "t": 0.0,
            "event": "run",
            "scenario": "recorded",
            "workload": "count",
            "guarantee": "exactly_once_v2",
            "brokers": 1,
            "stages": [["in", "count", "out"]],
            "dead_letters": True,
        }
    ]
    inputs: dict[int, list[Input]] = {0: [], 1: []}
    for number in range(12):
        partition, offset = number % 2, number // 2
        key, value = f"k{number % 4}", "poison-5" if number == 5 else str(number)
        inputs[partition].append(Input(offset, key, value, 1_000 + number))
        _add(
            events, "sent", **_where("in", partition, offset), key=key, value=value, timestamp=1_000 + number
        )
    outputs = {p: [output for _, output in MODELS["count"](rows)] for p, rows in inputs.items()}
    for until, committed in ((3, 3), (6, 6)):
        for partition, rows in outputs.items():
            done = rows[: until - (partition == 1 and until > 2)]
            for offset in range(3 - (partition == 1) if until == 6 else 0, len(done)):
                _add(
                    events,
                    "output",
                    **_where("out", partition, offset),
                    key=done[offset][0],
                    value=done[offset][1],
                )
        ends = {"out-0": until, "out-1": until - 1}
        _add(events, "committed", offsets={"in-0": committed, "in-1": committed}, ends=ends)
        if until == 3:
            _add(events, "dead", key="k1", value="poison-5")
            _add(events, "read", worker="a", key="k0", status=200, value="1:0")
            _add(events, "fault", what="SIGKILL to a")
            _add(events, "exit", worker="a", code=-9, wanted="killed", said=True)
            _add(events, "read", worker="b", key="k0", status=503, value=None)
    _add(events, "exit", worker="c", code=1, wanted="the disk is full", said=True)
    _add(events, "ready", worker="b", status=200, state="running", behind=0, moved=True)
    _add(events, "wait", what="all is committed", seconds=120, ok=True)
    rows = {key: value for partition in (0, 1) for key, value in outputs[partition]}
    _add(events, "table", source="views", rows=rows)
    _add(events, "exit", worker="b", code=0, wanted="clean", said=True)
    _add(events, "table", source="changelog", rows=dict(rows))
    return events


def _add(events: list[Event], event: str, **fields: Any) -> None:
    events.append({"t": float(len(events)), "event": event, **fields})


def _where(topic: str, partition: int, offset: int) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "offset": offset}


def _lost(events: list[Event]) -> None:
    events.remove(only(events, "output")[2])


def _doubled(events: list[Event]) -> None:
    events.insert(-1, {**only(events, "output")[0], "offset": 99})


def _counted_twice(events: list[Event]) -> None:
    """A record was counted again after a crash, so the last count is one too high."""
    last = only(events, "output")[-1]
    count, _, cause = last["value"].partition(":")
    last["value"] = f"{int(count) + 1}:{cause}"


def _table_behind(events: list[Event]) -> None:
    for table in only(events, "table"):
        table["rows"]["k0"] = "1:0"


def _changelog_differs(events: list[Event]) -> None:
    only(events, "table")[1]["rows"]["k0"] = "1:0"


def _swapped(events: list[Event]) -> None:
    first, second = only(events, "output")[0:2]
    first["offset"], second["offset"] = second["offset"], first["offset"]


def _ahead(events: list[Event]) -> None:
    """The first commit covers outputs that come only with the second commit."""
    only(events, "committed")[0]["offsets"]["in-0"] = 6


def _went_back(events: list[Event]) -> None:
    only(events, "committed")[1]["offsets"]["in-0"] = 2


def _stands(events: list[Event]) -> None:
    only(events, "wait")[0]["ok"] = False


def _skipped_poison(events: list[Event]) -> None:
    events.remove(only(events, "dead")[0])


def _poison_twice(events: list[Event]) -> None:
    events.insert(-1, dict(only(events, "dead")[0]))


def _says_nothing(events: list[Event]) -> None:
    next(e for e in only(events, "exit") if e["worker"] == "c")["said"] = False


def _never_ends(events: list[Event]) -> None:
    next(e for e in only(events, "exit") if e["worker"] == "c")["code"] = None


def _ended_by_itself(events: list[Event]) -> None:
    _add(events, "exit", worker="d", code=1, wanted="to go on", said=False, log="MemoryError")


def _alive_and_idle(events: list[Event]) -> None:
    for second in range(60):
        events.append(
            {
                "t": 100.0 + second,
                "event": "ready",
                "worker": "b",
                "status": 200,
                "state": "running",
                "behind": 3,
                "moved": False,
            }
        )


def _wrong_answer(events: list[Event]) -> None:
    only(events, "read")[0]["value"] = "7:0"


def _absent(events: list[Event]) -> None:
    only(events, "read")[1]["status"] = 404


def _unclean(events: list[Event]) -> None:
    next(e for e in only(events, "exit") if e["worker"] == "b")["code"] = 1


BAD: dict[str, Callable[[list[Event]], None]] = {
    "I1-lost": _lost,
    "I2-doubled": _doubled,
    "I3-counted-twice": _counted_twice,
    "I3-table-behind": _table_behind,
    "I4-changelog-differs": _changelog_differs,
    "I5-swapped": _swapped,
    "I6-ahead": _ahead,
    "I6-went-back": _went_back,
    "I10-stands": _stands,
    "I11-skipped-poison": _skipped_poison,
    "I11-poison-twice": _poison_twice,
    "I13-says-nothing": _says_nothing,
    "I13-never-ends": _never_ends,
    "I13-ended-by-itself": _ended_by_itself,
    "I13-alive-and-idle": _alive_and_idle,
    "I14-wrong-answer": _wrong_answer,
    "I14-absent": _absent,
    "I15-unclean": _unclean,
}


def main() -> None:
    HISTORIES.mkdir(exist_ok=True)
    _write("good", good())
    for name, spoil in BAD.items():
        events = deepcopy(good())
        spoil(events)
        _write(name, events)


def _write(name: str, events: list[Event]) -> None:
    (HISTORIES / f"{name}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


if __name__ == "__main__":
    main()
