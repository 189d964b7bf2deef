"""Builders of ``map_async`` and ``map_values_async``, whose function is a coroutine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from streamapp._base.callables import require_function
from streamapp._base.durations import Duration, to_ms
from streamapp.dsl.stateless import change_key, change_value
from streamapp.engine.asynchronous import Order
from streamapp.engine.operators.asynchronous import AsyncMap
from streamapp.errors import TopologyError
from streamapp.on_error import OnError, Retry
from streamapp.topology.edges import answer_of_edge

if TYPE_CHECKING:
    from streamapp.dsl.kstream import KStream

__all__ = ["TIMEOUT", "Calls", "mapped", "with_values_mapped"]

TIMEOUT = timedelta(seconds=5)


@dataclass(frozen=True)
class Calls:
    """The options of an asynchronous operator: the number of calls at a time, the order of results, the time-out."""

    concurrency: int
    order: Order
    timeout: Duration
    on_timeout: Callable[..., Any] | None
    on_error: OnError | None

    def operator(self, method: str, fn: Callable[..., Any], with_key: bool, pairs: bool) -> AsyncMap:
        """The operator. Raises `TopologyError` if an argument of the method is wrong."""
        concurrency, order, on_timeout = self.concurrency, self.order, self.on_timeout
        takes = 2 if with_key else 1
        require_function(fn, f"{method}()", "a coroutine function (async def)", takes, coroutine=True)
        if on_timeout is not None:
            operator = f"{method}(on_timeout=...)"
            require_function(on_timeout, operator, "a function that gives the result instead")
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise TopologyError(f"{method}(concurrency=...) must be 1 or more, not {concurrency!r}")
        if order not in ("key", "partition"):
            raise TopologyError(f'{method}(order=...) must be "key" or "partition", not {order!r}')
        timeout_ms = to_ms(self.timeout, f"{method}(timeout=...)")
        if timeout_ms <= 0:
            raise TopologyError(f"{method}(timeout=...) must be longer than 0, not {self.timeout!r}")
        if isinstance(self.on_error, Retry):
            raise TopologyError(
                f"{method}() cannot have on_error=Retry: its calls overlap, and a record that waits would "
                "be overtaken by calls that have begun. Try again within the coroutine, or use "
                "map_values(on_error=Retry...) with a blocking client"
            )
        answer = answer_of_edge(self.on_error, f"{method}()", "an asynchronous call")
        return AsyncMap(fn, with_key, pairs, concurrency, order, timeout_ms, on_timeout, answer)


def mapped(
    stream: KStream[Any, Any], fn: Callable[..., Any], calls: Calls, name: str | None
) -> KStream[Any, Any]:
    """The stream behind `KStream.map_async`."""
    return change_key(stream, calls.operator("map_async", fn, True, True), "KSTREAM-MAP-ASYNC-", name, None)


def with_values_mapped(
    stream: KStream[Any, Any], fn: Callable[..., Any], with_key: bool, calls: Calls, name: str | None
) -> KStream[Any, Any]:
    """The stream behind `KStream.map_values_async`."""
    operator = calls.operator("map_values_async", fn, with_key, False)
    return change_value(stream, operator, "KSTREAM-MAPVALUES-ASYNC-", name, None)
