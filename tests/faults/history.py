"""What happened in a run: one JSON object per line, in the order in which it was seen.

The judge sees nothing else. Every event has ``t`` (seconds since the run began) and ``event``:

    run        scenario, workload, guarantee, brokers, stages   what this is; always the first line
    sent       topic, partition, offset, key, value, timestamp  acknowledged by the brokers
    output     topic, partition, offset, key, value             read back (exactly once: read_committed)
    committed  offsets, ends                                    the group's offsets, then the ends of the outputs
    fault      what                                             what the driver did to the system
    exit       worker, code, wanted, said, log                  how a process ended, and whether its log says why; its
                                                                last lines, if it was to go on
    ready      worker, status, state, behind, moved             /health/ready; records not committed; since the last look
    wait       what, seconds, ok                                something that had to happen, and did or did not
    read       key, status, value                               an answer of the views
    table      source, rows                                     a whole table: of the changelog, of the views
    dead       key, value                                       a record of the dead-letter topic

A chaos run has these in other shapes, or besides (`tests.faults.chaos`):

    run        prefix, seed, workers, guarantee, stages         ``prefix`` is that of all topics; there are no stages
    drained                                                     all records are worked off: outputs can be compared
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
