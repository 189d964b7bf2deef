"""Notices waits that do not end: in the data plane, in the event loop, or for the group's coordinator.

Python code cannot be interrupted from outside. Without the watchdog, a worker that hangs would keep its partitions,
because its heartbeats go on. So the watchdog logs where the worker hangs, makes the worker not ready, and ends it after
``max_poll_interval_ms``. Other workers then take its tasks over. The Java consumer also leaves its group after this
time without a poll. For a wait for brokers or for the coordinator, the watchdog only makes the worker not ready.

The clock of the machine may be set back while librdkafka waits. librdkafka then waits for so much longer, also beyond
the time-out of its caller. So a worker also ends if such a wait takes longer than ``max_poll_interval_ms``, and the
clock has gone back by more than this time meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from streamapp._base.stacks import own_place, stack_of
from streamapp.errors import StreamsError

__all__ = ["EventLoopPlace", "HangingError", "Place", "Watchdog", "end_after", "watch_event_loop"]

logger: logging.Logger = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_STUCK_SECONDS = 30.0
"""After hanging for this time, or for a quarter of the limit if that is less, the worker is not ready."""
_SET_BACK_SECONDS = 5.0
"""A clock that is set back by less makes no wait much longer."""
_QUIET_SECONDS = 30.0
"""The shortest time between two warnings about a stuck worker, which may be stuck again at every record."""


class HangingError(StreamsError):
    """Code, mostly a user's, has held the worker up for longer than ``max_poll_interval_ms``."""


class Place(NamedTuple):
    """The present work of a thread. If the place stays the same for long, the thread hangs."""

    what: str
    turn: int
    thread: int | None
    can_hang: bool = True
    """False: the work has a time-out of its own, which holds unless the clock of the machine is set back."""
    patience: float | None = None
    """Seconds until the worker is not ready any more. None: the watchdog decides."""


class EventLoopPlace:
    """The work of the event loop that creates this object, for the watchdog."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._turns = 0

    def place(self) -> Place:
        """The place stays the same until the event loop has run a callback."""
        place = Place("the event loop", self._turns, self._thread)
        self._loop.call_soon_threadsafe(self._count_turn)
        return place

    def _count_turn(self) -> None:
        self._turns += 1


def end_after(seconds: float) -> None:
    """Ends the process with exit code 70 if it has not ended after some seconds.

    The thread that hangs may be the one that has to stop the worker.
    """

    def end() -> None:
        said = threading.Thread(target=say, daemon=True)
        said.start()
        said.join(1.0)  # a full pipe must not keep the process alive
        os._exit(70)

    def say() -> None:
        text = f"Error: the process has not ended within {seconds:g} s, because a thread hangs or waits for brokers"
        os.write(2, f"{text}. The process ends now with exit code 70.\n".encode())

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def watch_event_loop(app: Any, limit: float, shutdown_timeout: float) -> Watchdog:
    """Starts a watchdog for the running event loop of a worker without a topology, whose agents may block this loop."""
    loop = asyncio.get_running_loop()

    def on_hang(error: HangingError) -> None:
        logger.critical("this worker ends: %s", error)
        asyncio.run_coroutine_threadsafe(app.crash(error), loop)
        if app.in_worker:
            end_after(shutdown_timeout)

    watchdog = Watchdog([EventLoopPlace().place], limit, on_hang)
    watchdog.start()
    return watchdog


class Watchdog(threading.Thread):
    """Looks at the present work of threads at least once a second, and notes in `stuck` the work that goes on for long.

    Each function of ``places`` returns the present work of one thread as a `Place`; None means no work. A `Place` that
    stays the same for longer than its ``patience`` is noted in `stuck`. Without ``patience``, the time is 30 s, or a
    quarter of ``limit`` if that is less. A `Place` with ``can_hang`` may stay the same for ``limit`` seconds. Then the
    watchdog calls ``on_hang`` once, and its own thread ends. The function ``on_hang`` ends the worker. The same holds
    for each `Place` of a thread during which ``wall_clock`` was set back by more than ``limit``. Nobody can set
    ``clock``.
    """

    def __init__(
        self,
        places: list[Callable[[], Place | None]],
        limit: float,
        on_hang: Callable[[HangingError], None],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name="streamapp-watchdog", daemon=True)
        self._places = places
        self._limit = limit
        self._on_hang = on_hang
        self._clock = clock
        self._wall_clock = wall_clock
        self._since: dict[int, tuple[Place, float, float]] = {}
        """The last place of each thread, and the times of both clocks when the thread came to this place."""
        self._looked_at = clock()
        self._closed = threading.Event()
        self.stuck: str | None = None
        """The work that makes the worker not ready, with its time. None: the worker is not stuck."""
        self._warned_at: float | None = None
        self._warned = False
        """True if the last line in the log says that the worker is stuck."""

    def run(self) -> None:
        while not self._closed.wait(min(_LOOK_SECONDS, self._limit / 8)):
            if self.look():
                return

    def look(self) -> bool:
        """Looks once. True: a thread hangs, and ``on_hang`` was called."""
        now, wall, stuck = self._clock(), self._wall_clock(), None
        # The process itself was suspended, with all its threads.
        stood_still = now - self._looked_at > self._limit
        self._looked_at = now
        for number, place_of in enumerate(self._places):
            place = place_of()
            if place is None:
                self._since.pop(number, None)
                continue
            known, since, wall_since = self._since.get(number, (None, now, wall))
            if known != place or (stood_still and place.can_hang):
                self._since[number] = place, now, wall
                continue
            seconds = now - since
            set_back = max(0.0, seconds - (wall - wall_since))
            lasts = place.thread is not None and set_back > self._limit
            if seconds > self._limit and (place.can_hang or lasts):
                self._on_hang(HangingError(_story(place, seconds, set_back)))
                return True
            patience = min(_STUCK_SECONDS, self._limit / 4) if place.patience is None else place.patience
            if seconds > patience:
                stuck = f"{place.what} has not come back for {seconds:.0f} s{_where(place)}{_cause(set_back)}"
        self.stuck = stuck  # set before the log call, which may hang, too
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


def _where(place: Place) -> str:
    """The function of the application that holds the thread up."""
    found = own_place(place.thread) if place.can_hang else ""
    return f", in {found}" if found else ""


def _cause(set_back: float) -> str:
    if set_back <= _SET_BACK_SECONDS:
        return ""
    return (
        f". Meanwhile the clock of this machine was set back by {set_back:.0f} s, so that waits last longer"
    )


def _story(place: Place, seconds: float, set_back: float) -> str:
    if not place.can_hang:
        return (
            f"{place.what} has not come back for {seconds:.0f} s{_cause(set_back)}. This worker ends, and can be "
            "started again at once"
        )
    return (
        f"{place.what} has not come back for {seconds:.0f} s. User code cannot be interrupted, so this worker ends and "
        "others take over. If the code needs more time, set a longer max_poll_interval_ms. The code is at:\n"
        f"{stack_of(place.thread)}"
    )
