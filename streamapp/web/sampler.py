"""Rates, and times without progress, from samples of a worker's counters, taken once a second."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from aiohttp import web

from streamapp.consumer.account import ConsumerStatus
from streamapp.web.view_source import InputStatus, RestoreStatus, TaskStatus, ViewSource, WorkerStatus

__all__ = ["HISTORY_SECONDS", "Sampler", "Track"]

HISTORY_SECONDS = 120
logger: logging.Logger = logging.getLogger(__name__)

_RATE_SECONDS = 10
_GROWTH_SECONDS = 60


@dataclass(slots=True)
class Track:
    """A counter over the last seconds: pairs of time in seconds and value.

    ``moved_at`` is the time of the last change, or of the last sample at which the counter had no reason to change.
    """

    moved_at: float
    points: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=HISTORY_SECONDS))

    def add(self, now: float, value: int, waits: bool) -> None:
        if not waits or not self.points or self.points[-1][1] != value:
            self.moved_at = now
        self.points.append((now, value))

    @property
    def seconds(self) -> float:
        """The seconds between the first and the last sample."""
        return self.points[-1][0] - self.points[0][0] if self.points else 0.0

    def change(self, seconds: int) -> float:
        """The mean change per second over the last seconds; 0 before the second sample."""
        points = self._last(seconds)
        return _mean(points, points[-1][1] - points[0][1]) if points else 0.0

    def growth(self, seconds: int) -> float:
        """The mean growth per second of a counter. A counter that falls begins anew, and does not grow meanwhile."""
        points = self._last(seconds)
        return _mean(points, sum(max(0, after[1] - before[1]) for before, after in pairwise(points)))

    def _last(self, seconds: int) -> list[tuple[float, int]]:
        """The samples of the last seconds."""
        return [point for point in self.points if point[0] >= self.points[-1][0] - seconds]


class Sampler:
    """Keeps the counters of a worker for two minutes. The memory is bounded by the number of the worker's partitions.

    `tick` takes one sample. `run` calls `tick` once a second while the web server is up. Requests call `look`, which
    updates ``status`` and takes no sample. So many requests do not shorten the history.
    """

    def __init__(self, source: ViewSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock = source, clock
        self._tracks: dict[Hashable, Track] = {}
        self._state: str | None = None
        self._state_since = clock()
        self._status: WorkerStatus | None = None

    @property
    def status(self) -> WorkerStatus:
        """The status of the worker at the last `look`."""
        # The first look waits for a request: the web server is made before the command line's port is known.
        return self._status or self.look()

    def look(self) -> WorkerStatus:
        status = self._status = self._source.status()
        if status.state != self._state:
            self._state, self._state_since = status.state, self._clock()
        return status

    def tick(self) -> None:
        now, status = self._clock(), self.look()
        samples = {key: (value, waits) for key, value, waits in self._samples(status)}
        self._tracks = {key: track for key, track in self._tracks.items() if key in samples}
        for key, (value, waits) in samples.items():
            self._tracks.setdefault(key, Track(now)).add(now, value, waits)

    def _samples(self, status: WorkerStatus) -> Iterable[tuple[Hashable, int, bool]]:
        """Each counter with its value. False: the counter has no reason to change, so it does not stand still."""
        yield "processed", status.processed, True
        for each in status.global_inputs:
            yield _position_key(None, each), each.position or 0, each.lag != 0
        for each in status.agent_inputs:
            yield _agent_key(each), each.position or 0, each.lag != 0
            if each.lag is not None:
                yield _lag_key(None, each), each.lag, True
        for consumer in status.consumers:
            for partition, lag in consumer.lag.items():
                yield ("lag", consumer.name, partition), lag, True
        for standby in status.standbys:
            for copy in standby.stores:
                yield _restore_key(copy), copy.position, copy.remaining != 0
        held = status.paused or status.state == "rebalancing"
        for task in status.tasks:
            yield ("processed", task.id), task.processed, True
            processes = task.state == "running" and not held
            for each in task.inputs:
                yield _position_key(task, each), each.position or 0, processes and each.lag != 0
                if each.lag is not None:
                    yield _lag_key(task, each), each.lag, True
            for restore in task.restoring:
                yield _restore_key(restore), restore.position, restore.remaining != 0

    @property
    def state_seconds(self) -> float:
        """The seconds since the worker's last change of state."""
        return self._clock() - self._state_since

    def history(self) -> list[int]:
        """Records processed in each of the last seconds, the newest last."""
        track = self._tracks.get("processed")
        points = list(track.points) if track else []
        return [after[1] - before[1] for before, after in pairwise(points)]

    def throughput(self, task: TaskStatus | None = None) -> float:
        """Records per second over the last ten seconds, of one task or of the worker."""
        return self._rate("processed" if task is None else ("processed", task.id))

    def restore_rate(self, restore: RestoreStatus) -> float:
        return self._rate(_restore_key(restore))

    def lag_growth(self, task: TaskStatus | None, each: InputStatus) -> float:
        """The growth of the lag over the last minute, in records per second; negative if the lag shrinks. ``task`` is
        None for an input of agents.

        The growth is 0 during the first minute, because a new worker may still read the history of its topics.
        """
        return self._lag_growth(_lag_key(task, each))

    def lag_growth_of_consumer(self, consumer: ConsumerStatus) -> float:
        """The growth of the lag of a consumer over all its partitions, as in `lag_growth`."""
        return sum(self._lag_growth(("lag", consumer.name, partition)) for partition in consumer.lag)

    def _lag_growth(self, key: Hashable) -> float:
        track = self._tracks.get(key)
        return track.change(_GROWTH_SECONDS) if track and track.seconds >= _GROWTH_SECONDS else 0.0

    def standstill(self, task: TaskStatus | None, each: InputStatus | RestoreStatus) -> float:
        """The seconds for which a position has not moved although records wait.

        ``task`` is None for a standby, and for a global topic.
        """
        key = _position_key(task, each) if isinstance(each, InputStatus) else _restore_key(each)
        track = self._tracks.get(key)
        return self._clock() - track.moved_at if track else 0.0

    def standstill_of_agents(self, each: InputStatus) -> float:
        """The seconds for which agents have not finished the first open record of a partition."""
        track = self._tracks.get(_agent_key(each))
        return self._clock() - track.moved_at if track else 0.0

    def _rate(self, key: Hashable) -> float:
        track = self._tracks.get(key)
        return track.growth(_RATE_SECONDS) if track else 0.0

    async def run(self, _app: web.Application) -> AsyncIterator[None]:
        """Takes a sample once a second while the web server is up; for ``web.Application.cleanup_ctx``."""

        async def sample() -> None:
            while True:
                try:
                    self.tick()
                except Exception:
                    # Without further samples, every position would seem to stand still.
                    logger.exception(
                        "a sample of the worker's counters has failed; the next one comes in a second"
                    )
                await asyncio.sleep(1.0)

        task = asyncio.get_running_loop().create_task(sample(), name="streamapp-web-sampler")
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _mean(points: Sequence[tuple[float, int]], change: int) -> float:
    """A change per second of the time that the samples cover; 0 for a single sample."""
    seconds = points[-1][0] - points[0][0] if points else 0.0
    return change / seconds if seconds > 0 else 0.0


def _position_key(task: TaskStatus | None, each: InputStatus) -> Hashable:
    return "position", task and task.id, each.topic, each.partition


def _agent_key(each: InputStatus) -> Hashable:
    return "agents", each.topic, each.partition


def _lag_key(task: TaskStatus | None, each: InputStatus) -> Hashable:
    return "lag", task and task.id, each.topic, each.partition


def _restore_key(each: RestoreStatus) -> Hashable:
    return "restore", each.store, each.partition
