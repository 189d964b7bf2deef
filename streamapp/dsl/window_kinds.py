"""`WindowKind`: the interface through which the DSL uses a kind of window, and its three implementations.

A kind makes the operator of an aggregation, its store, the serde of its keys, and its view for joins. A kind also gives
the time of a final result. A new kind is a `WindowKind` in a file of its own, which is registered for the class that
defines the windows:

    @window_kind.register
    def _(windows: MyWindows) -> WindowKind: ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial, singledispatch
from typing import Any, ClassVar

from streamapp.dsl.aggregation import Merger
from streamapp.dsl.context import Context
from streamapp.dsl.materialize import Materialized, WindowLayout, windowed_spec
from streamapp.engine.operators.aligned_windows import WindowAggregate
from streamapp.engine.operators.session_windows import SessionWindowAggregate
from streamapp.engine.operators.sliding_windows import SlidingWindowAggregate
from streamapp.engine.operators.views import SessionView, TableView, WindowView
from streamapp.engine.operators.window_aggregate import WindowedAggregate
from streamapp.errors import TopologyError
from streamapp.serdes.base import Serde
from streamapp.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamapp.state import kinds
from streamapp.state.spec import StoreSpec
from streamapp.windows import SessionWindows, SlidingWindows, TimeWindows, Windows

__all__ = ["WindowKind", "window_kind"]


class WindowKind(ABC):
    """A kind of window. Times are in ms."""

    merges: ClassVar[bool] = False
    """True if two windows may merge, as sessions do, so that an aggregation needs a merger."""
    closes: bool = True
    """True if a window closes at some time, so that it has a final result."""
    count_uses_a_name: ClassVar[bool] = True
    """True if Java's count() with an unnamed Materialized uses up a number for a generated name."""

    @property
    @abstractmethod
    def final_after_ms(self) -> int:
        """The time from the end of a window to its close, after which its result does not change any more."""

    @abstractmethod
    def key_serde(self, inner: Serde[Any]) -> Serde[Any]:
        """The serde of the result's `Windowed` keys."""

    @property
    @abstractmethod
    def layout(self) -> WindowLayout:
        """The properties of the store that follow from the windows, such as the least retention."""

    def spec(
        self,
        context: Context,
        name: str,
        materialized: Materialized | None,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        emit_final: bool,
    ) -> StoreSpec:
        """The store of the windows. Raises `ConfigError` if ``materialized`` has a retention that is too short."""
        return windowed_spec(context, name, materialized, key_serde, value_serde, self.layout, emit_final)

    @abstractmethod
    def view(self, store: str) -> TableView:
        """The view with which joins read the resulting table."""

    @abstractmethod
    def operator(self, merger: Merger | None, **aggregation: Any) -> WindowedAggregate:
        """The operator of the aggregation. ``merger`` is None for windows that do not merge."""


@singledispatch
def window_kind(windows: object) -> WindowKind:
    """The `WindowKind` for a window definition such as `TimeWindows`. Raises `TopologyError` for any other object."""
    raise TopologyError(
        "windowed_by() takes TimeWindows, SlidingWindows, SessionWindows, UnlimitedWindows or a Windows of "
        f"your own, not {windows!r}"
    )


class _Aligned(WindowKind):
    """Windows that follow from the timestamp of a record alone."""

    def __init__(self, windows: Windows) -> None:
        for what, value, least in (("size_ms", windows.size_ms, 1), ("grace_ms", windows.grace_ms, 0)):
            if not isinstance(value, int) or value < least:
                raise TopologyError(
                    f"{what} of {windows!r} has to be an int, at least {least}, not {value!r}"
                )
        self._windows = windows
        self.closes = windows.closes

    @property
    def final_after_ms(self) -> int:
        return self._windows.grace_ms

    def key_serde(self, inner: Serde[Any]) -> Serde[Any]:
        return TimeWindowedSerde(inner, self._windows.size_ms)

    @property
    def layout(self) -> WindowLayout:
        size = self._windows.size_ms
        advance = self._windows.advance_ms if isinstance(self._windows, TimeWindows) else size
        return WindowLayout(
            partial(kinds.TimestampedWindow, size_ms=size, advance_ms=advance),
            size + self._windows.grace_ms,
            "the window size plus the grace period",
            # As in Kafka Streams, the store has a record cache even with final results. A jump of stream time may
            # expire a window in the store before its result came out, but the cache still has the window.
            final_cached=True,
        )

    def view(self, store: str) -> TableView:
        return WindowView(store)

    def operator(self, merger: Merger | None, **aggregation: Any) -> WindowedAggregate:
        return WindowAggregate(self._windows, **aggregation)


class _Sliding(WindowKind):
    count_uses_a_name = False

    def __init__(self, windows: SlidingWindows) -> None:
        self._windows = windows

    @property
    def final_after_ms(self) -> int:
        return self._windows.grace_ms

    def key_serde(self, inner: Serde[Any]) -> Serde[Any]:
        return TimeWindowedSerde(inner, self._windows.difference_ms)

    @property
    def layout(self) -> WindowLayout:
        difference = self._windows.difference_ms
        return WindowLayout(
            partial(kinds.TimestampedWindow, size_ms=difference, indexed=True),
            2 * difference + self._windows.grace_ms,
            "twice the time difference plus the grace period",
        )

    def view(self, store: str) -> TableView:
        return WindowView(store)

    def operator(self, merger: Merger | None, **aggregation: Any) -> WindowedAggregate:
        return SlidingWindowAggregate(self._windows, **aggregation)


class _Sessions(WindowKind):
    merges = True

    def __init__(self, windows: SessionWindows) -> None:
        self._windows = windows

    @property
    def final_after_ms(self) -> int:
        return self._windows.gap_ms + self._windows.grace_ms

    def key_serde(self, inner: Serde[Any]) -> Serde[Any]:
        return SessionWindowedSerde(inner)

    @property
    def layout(self) -> WindowLayout:
        return WindowLayout(kinds.Session, self.final_after_ms, "the inactivity gap plus the grace period")

    def view(self, store: str) -> TableView:
        return SessionView(store)

    def operator(self, merger: Merger | None, **aggregation: Any) -> WindowedAggregate:
        assert merger is not None
        return SessionWindowAggregate(self._windows, merger=merger, **aggregation)


window_kind.register(Windows, _Aligned)
window_kind.register(SlidingWindows, _Sliding)
window_kind.register(SessionWindows, _Sessions)
