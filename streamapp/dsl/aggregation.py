"""What all aggregations of grouped streams share: the functions behind count and reduce, and the graph they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamapp.dsl.context import Context
from streamapp.dsl.materialize import Materialized, session_spec, window_spec
from streamapp.engine.operator import Operator
from streamapp.engine.operators.session import SessionWindowAggregate
from streamapp.engine.operators.sliding import SlidingWindowAggregate
from streamapp.engine.operators.views import SessionView, TableView, WindowView
from streamapp.engine.operators.windows import WindowAggregate
from streamapp.serdes.base import Serde
from streamapp.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamapp.state.spec import StoreSpec
from streamapp.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

__all__ = [
    "AnyWindows",
    "Reducing",
    "ReducingMerger",
    "WindowKind",
    "add_one",
    "nothing",
    "subtract_one",
    "sum_of_both",
    "zero",
]

AnyWindows = TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows


def zero() -> int:
    """Where counts start."""
    return 0


def add_one(key: Any, value: Any, count: int) -> int:
    """Counts one more."""
    return count + 1


def subtract_one(key: Any, value: Any, count: int) -> int:
    """Counts one less: a row left the group."""
    return count - 1


def sum_of_both(key: Any, first: int, second: int) -> int:
    """The count of two sessions that became one."""
    return first + second


def nothing() -> None:
    """Where reductions start: the first value is the first result."""


class Reducing:
    """A reducer as an aggregator: the first value is the aggregate."""

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self._reducer = reducer

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else self._reducer(aggregate, value)


class ReducingMerger:
    """A reducer as a merger of sessions."""

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self._reducer = reducer

    def __call__(self, key: Any, first: Any, second: Any) -> Any:
        return second if first is None else self._reducer(first, second)


@dataclass(frozen=True)
class WindowKind:
    """What the three kinds of windows do each in their own way."""

    windows: AnyWindows

    @property
    def grace_ms(self) -> int:
        """How long after its end a window is final."""
        w = self.windows
        return w.grace_ms + w.gap_ms if isinstance(w, SessionWindows) else w.grace_ms

    def key_serde(self, inner: Serde[Any]) -> Serde[Any]:
        """The serde of the result's `Windowed` keys."""
        w = self.windows
        if isinstance(w, SessionWindows):
            return SessionWindowedSerde(inner)
        return TimeWindowedSerde(inner, w.difference_ms if isinstance(w, SlidingWindows) else w.size_ms)

    def spec(
        self,
        context: Context,
        name: str,
        materialized: Materialized | None,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        emit_final: bool,
    ) -> StoreSpec:
        """The store that holds the windows."""
        w = self.windows
        if isinstance(w, SessionWindows):
            return session_spec(context, name, materialized, key_serde, value_serde, w, emit_final)
        return window_spec(context, name, materialized, key_serde, value_serde, w, emit_final)

    def view(self, store: str) -> TableView:
        """The result as joins read it."""
        return SessionView(store) if isinstance(self.windows, SessionWindows) else WindowView(store)

    def operator(
        self,
        store: str,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any] | None,
        emit_final: bool,
        send_old: bool,
    ) -> Operator:
        """The aggregation of one window kind."""
        w = self.windows
        if isinstance(w, SessionWindows):
            assert merger is not None
            return SessionWindowAggregate(w, store, initializer, aggregator, merger, emit_final, send_old)
        if isinstance(w, SlidingWindows):
            return SlidingWindowAggregate(w, store, initializer, aggregator, emit_final, send_old)
        return WindowAggregate(w, store, initializer, aggregator, emit_final, send_old)
