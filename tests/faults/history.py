"""The history of a run: one JSON object per line, in the order in which the driver has seen the events.

The judge sees nothing else. Every event has ``t`` (seconds since the history was opened) and ``event``:

    run        scenario, workload, guarantee, brokers, stages,  the kind of the run; always the first line
               dead_letters
    sent       topic, partition, offset, key, value,            a record of the input; ``again`` if a replay wrote it
               timestamp, again
    expired    topic, partition, first, end                     offsets of the input that were deleted unread
    output     topic, partition, offset, key, value             a result (with exactly_once_v2: a committed one)
    committed  offsets, ends                                    the group's offsets, then the ends of the outputs
    fault      what                                             an act of the driver, such as a start or a kill
    exit       worker, code, wanted, said, log                  the end of a process; ``said`` if its log has the wanted
                                                                reason; last lines of the log, if it had to go on
    ready      worker, status, state, behind, moved             /health/ready; the number of records not committed;
                                                                true if something has moved since the last look
    wait       what, seconds, ok                                something that had to happen; ``ok`` if it did
    read       worker, key, status, value                       an answer of the views
    table      source, rows                                     a whole table: of the changelog, of the views
    dead       key, value                                       a record of the dead-letter topic
    letter     letter, key, value, was, state, replays          a letter of the desk; ``was``: its value before edits
    unordered  keys                                             keys that give up their order, through retry topics

A chaos run (`tests.faults.chaos`) has these events in other shapes, or in addition:

    run        prefix, seed, workers, guarantee, stages         ``prefix`` is that of all topics; there are no stages
    drained                                                     all input is committed: outputs can be compared
    dead       topic, partition, offset, error, key, value      with the place of the record that could not be processed
    pending    key, value                                       a row of the store that no table shows
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["Event", "History", "read_history"]

Event = dict[str, Any]


class History:
    """Appends events to a file, from any thread, and keeps them for questions while the run goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Event] = []
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._file = path.open("w", encoding="utf-8")

    def add(self, event: str, **fields: Any) -> None:
        with self._lock:
            line: Event = {"t": round(time.monotonic() - self._began, 3), "event": event, **fields}
            self.events.append(line)
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def of(self, event: str) -> list[Event]:
        with self._lock:
            return [line for line in self.events if line["event"] == event]

    def close(self) -> None:
        self._file.close()


def read_history(path: Path) -> Iterator[Event]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def only(events: Iterable[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]
