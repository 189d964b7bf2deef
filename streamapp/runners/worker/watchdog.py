"""Notices what does not come back: a record in the data plane, anything in the event loop, the group's coordinator.

User code cannot be interrupted from outside, and a worker that is held up keeps its partitions for as long as its heartbeats
go on. So the worker says where it hangs, stops being ready, and ends after ``max_poll_interval_ms``, as a Kafka consumer
would leave its group: others take its tasks over.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

from streamapp.errors import StreamsError

__all__ = ["HangingError", "Place", "Watchdog"]

logger: logging.Logger = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_STUCK_SECONDS = 30.0
"""From then on the worker is not ready (a quarter of the limit, if that is less)."""
_QUIET_SECONDS = 30.0
"""So long after a worker was logged as stuck nothing is logged of its being so again: it may be with every record."""


class HangingError(StreamsError):
    """User code has held the worker up for longer than ``max_poll_interval_ms``."""


class Place(NamedTuple):
    """What a thread is busy with: it hangs there if it is the same place for long."""

    what: str
    turn: int
    thread: int | None
    can_hang: bool = True
    """False: it has its own time-out."""
    patience: float | None = None
    """Seconds until the worker is not ready any more; None: the watchdog's."""


class Watchdog(threading.Thread):
    """Looks once a second at what each of ``places`` gives (None: idle), and calls ``on_hang`` once.

    ``limit`` is in seconds.
    """

    def __init__(
        self,
        places: list[Callable[[], Place | None]],
        limit: float,
        on_hang: Callable[[HangingError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name="streamapp-watchdog", daemon=True)
        self._places = places
        self._limit = limit
        self._on_hang = on_hang
        self._clock = clock
        self._since: dict[int, tuple[Place, float]] = {}
        self._looked_at = clock()
        self._closed = threading.Event()
        self.stuck: str | None = None
        """What has held the worker up for a good part of the limit."""
        self._warned_at: float | None = None
        self._warned = False
        """The last that was logged is that the worker is stuck."""

    def run(self) -> None:
        while not self._closed.wait(min(_LOOK_SECONDS, self._limit / 8)):
            if self.look():
                return

    def look(self) -> bool:
        """One look; True: it hangs, and that was said."""
        now, stuck = self._clock(), None
        # The process was suspended, and its threads could not go on either.
        stood_still = now - self._looked_at > self._limit
        self._looked_at = now
        for number, place_of in enumerate(self._places):
            place = place_of()
            if place is None:
                self._since.pop(number, None)
                continue
            known, since = self._since.get(number, (None, now))
            if known != place or (stood_still and place.can_hang):
                self._since[number] = place, now
                continue
            seconds = now - since
            if place.can_hang and seconds > self._limit:
                self._on_hang(HangingError(_story(place, seconds)))
                return True
            patience = min(_STUCK_SECONDS, self._limit / 4) if place.patience is None else place.patience
            if seconds > patience:
                stuck = f"{place.what} has not come back for {seconds:.0f} s"
        self.stuck = stuck  # before it is logged: what hangs may be whoever reads the log
        self._log(stuck, now)
        return False

    def _log(self, stuck: str | None, now: float) -> None:
        if stuck is None:
            if self._warned:
                self._warned = False
                logger.info("this worker is no longer stuck")
        elif not self._warned and (self._warned_at is None or now - self._warned_at >= _QUIET_SECONDS):
            self._warned, self._warned_at = True, now
            logger.warning("this worker is stuck, and not ready: %s", stuck)

    def close(self) -> None:
        self._closed.set()


def _story(place: Place, seconds: float) -> str:
    frame = sys._current_frames().get(place.thread or 0)
    stack = "".join(traceback.format_stack(frame)[-4:]) if frame is not None else ""
    return (
        f"{place.what} has not come back for {seconds:.0f} s. It cannot be interrupted, so this worker ends and others take "
        f"over; max_poll_interval_ms is how long user code may take. It is at:\n{stack}"
    )
