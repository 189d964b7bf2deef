"""Aggregations by windows that follow from the timestamp alone: tumbling, hopping, unlimited, and a user's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from streamapp.engine.operators.forward import TableForward, copier_for_old, emit_nothing
from streamapp.engine.operators.window_aggregate import Place, WindowedAggregate
from streamapp.records import Headers, Windowed
from streamapp.windows import Windows

__all__ = ["WindowAggregate"]

_new_tuple = tuple.__new__


@dataclass(frozen=True)
class WindowAggregate(WindowedAggregate):
    """Aggregates the values of each key by `Windows`, for example tumbling or hopping ones. Their ends are exclusive.

    Null values are aggregated, too, and records with a null key are dropped. Source: Kafka Streams'
    ``KStreamWindowAggregate``.
    """

    persistent_name = "WindowAggregate"

    windows: Windows
    _: KW_ONLY

    @property
    def closes_after_ms(self) -> int:
        return self.windows.grace_ms

    def bind_windows(self, store: Any, forward: TableForward) -> Place:
        size, starts_of = self.windows.span_ms, self.windows.windows_for
        if self.all_or_none and not self.windows.tumbling:
            return self._bind_all_or_none(store, forward)
        emits = forward is not emit_nothing
        keep_old = copier_for_old(store, self.send_old and emits) is not None
        kept, fold = store.row_folder(self.initializer, self.aggregator, keep_old)

        def place_in_one(key: Any, value: Any, timestamp: int, headers: Headers, close_time: int) -> int:
            start = timestamp - timestamp % size
            end = start + size
            if end <= close_time:
                return 1
            new, old, latest = fold((kept(key), start, 0), key, value, timestamp)
            if emits:
                forward(_new_tuple(Windowed, (key, start, end)), new, old, latest, headers)
            return 0

        def place(key: Any, value: Any, timestamp: int, headers: Headers, close_time: int) -> int:
            closed, kept_key = 0, kept(key)
            for start in starts_of(timestamp):
                end = start + size
                if end <= close_time:
                    closed += 1
                    continue
                new, old, latest = fold((kept_key, start, 0), key, value, timestamp)
                if emits:
                    forward(_new_tuple(Windowed, (key, start, end)), new, old, latest, headers)
            return closed

        return place_in_one if self.windows.tumbling else place

    def _bind_all_or_none(self, store: Any, forward: TableForward) -> Place:
        """As `bind_windows`, but the aggregator is called for all open windows before any window is written.

        So a record whose function raises for one window is in no window.
        """
        size, starts_of, get = self.windows.span_ms, self.windows.windows_for, store.get
        initializer, aggregator = self.initializer, self.aggregator
        results: deque[Any] = deque()
        kept, fold = store.row_folder(initializer, lambda key, value, aggregate: results.popleft())

        def place(key: Any, value: Any, timestamp: int, headers: Headers, close_time: int) -> int:
            starts = list(starts_of(timestamp))
            open_starts = [start for start in starts if start + size > close_time]
            results.clear()
            for start in open_starts:
                row = get(key, start)
                before = initializer() if row is None else row[0]
                results.append(aggregator(key, value, before))
            kept_key = kept(key)
            for start in open_starts:
                new, old, latest = fold((kept_key, start, 0), key, value, timestamp)
                forward(_new_tuple(Windowed, (key, start, start + size)), new, old, latest, headers)
            return len(starts) - len(open_starts)

        return place

    def closed_rows(
        self, store: Any, last_close: int, close_time: int
    ) -> Iterable[tuple[Any, Any, int]] | None:
        size, starts_of = self.windows.size_ms, self.windows.windows_for
        upper = close_time - size
        if upper < 0:
            return None
        lower = 0 if last_close == -1 else max(0, last_close - size) + 1
        if last_close != -1 and starts_of(upper) == starts_of(lower - 1):
            return None  # the close time has not yet passed another window's end
        return store.find_closed(lower, upper)  # type: ignore[no-any-return]
