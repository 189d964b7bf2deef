"""The punctuators of one task, by stream time and by the wall clock, which the task calls between two records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from streamapp.engine.failures import Failures, ProcessingFailed
from streamapp.engine.processor import PunctuationType
from streamapp.engine.punctuation import Punctuations, Schedule
from streamapp.engine.runner_ports import TaskRules
from streamapp.engine.running_task import RunningTask
from streamapp.errors import StreamsError
from streamapp.records import RecordContext

__all__ = ["Punctuators"]


class Punctuators:
    """The punctuators of one task. ``rules`` say which punctuators the runner calls."""

    def __init__(
        self,
        task: RunningTask,
        failures: Failures,
        rules: TaskRules,
    ) -> None:
        self._task, self._failures, self._rules = task, failures, rules
        self.by_stream_time: Punctuations = Punctuations()
        self.by_wall_clock: Punctuations = Punctuations()
        self._numbers: Counter[str] | None = Counter() if rules.punctuators_go_on else None
        """The number of remembered punctuators of each node, while processors are initialized; afterwards None."""

    def initialized(self) -> None:
        """Notes that all processors are initialized. Times of punctuators that come later are not remembered."""
        self._numbers = None

    def schedule(
        self,
        node: str,
        interval_ms: int,
        type: PunctuationType,
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> Schedule:
        """Adds a punctuator.

        Without ``start_ms``, the first call comes with the first record (stream time) or after one interval (wall
        clock). By stream time, later calls come at multiples of the interval from 1970 on. With ``start_ms``, calls
        come at whole intervals from ``start_ms``, but not for times in the past (KIP-1146).

        Raises `StreamsError` in the processor of a global store, as in Kafka Streams (``GlobalProcessorContextImpl``).
        """
        if not self._rules.punctuators:
            raise StreamsError(
                f"{node} fills a global store, and such a processor has no punctuators, because it belongs to no task. "
                "Schedule the punctuator in a processor of a stream"
            )
        by_stream = type is PunctuationType.STREAM_TIME
        if not by_stream:
            self.require_wall_clock(node)
        punctuations = self.by_stream_time if by_stream else self.by_wall_clock
        now = self._task.stream_time if by_stream else self._task.wall_clock_ms()
        first = start_ms if start_ms is not None else 0 if by_stream else now + interval_ms
        schedule = Schedule(node, first, interval_ms, callback, start_ms or 0)
        if start_ms is not None and start_ms < now:
            schedule.go_on(now)
        if by_stream and self._numbers is not None:
            self._remember(schedule, self._numbers)
        punctuations.add(schedule)
        return schedule

    def _remember(self, schedule: Schedule, numbers: Counter[str]) -> None:
        """Each commit notes the time of the next call, or that the punctuator is cancelled.

        The second note names the interval. So another punctuator, which a new version of the processor schedules in
        the same place, is mostly not cancelled.
        """
        name = f"{schedule.node}.punctuator-{numbers[schedule.node]}"
        numbers[schedule.node] += 1
        due = self._task.remember(name, lambda: -1 if schedule.cancelled else schedule.time)
        if due >= 0:
            schedule.time = due
        cancelled = f"{name}.cancelled-{schedule.interval}"
        if self._task.remember(cancelled, lambda: 1 if schedule.cancelled else -1) >= 0:
            schedule.cancel()

    def require_wall_clock(self, node: str) -> None:
        """Raises `UnsupportedOperation` if the runner calls no wall-clock punctuators."""
        if self._rules.refuse_wall_clock is not None:
            raise self._rules.refuse_wall_clock(node)

    def call_due(self, punctuations: Punctuations, now: int) -> bool:
        """Calls the punctuators of one clock that are due. Returns True if a punctuator was called."""
        called = punctuations.run(now, self._call)
        self._task.commit_needed = self._task.commit_needed or called
        return called

    def _call(self, schedule: Schedule, now: int) -> None:
        self._task.work_as(RecordContext(None, -1, -1, now), self._punctuate, schedule, now)

    def _punctuate(self, schedule: Schedule, now: int) -> None:
        try:
            schedule.callback(now)
        except ProcessingFailed:
            raise
        except Exception as error:
            self._failures.processing(error, schedule.node)
