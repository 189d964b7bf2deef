"""The operators whose function is a coroutine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from streamapp.engine.asynchronous import Order
from streamapp.engine.operator import NodeContext, Operator, ProcessFn
from streamapp.on_error import Answer, Chooser
from streamapp.records import Headers

__all__ = ["AsyncMap"]


@dataclass(frozen=True)
class AsyncMap(Operator):
    """Maps each record with a coroutine function, which gets the value, or with ``with_key`` key and value.

    The result of the function is the new value, or with ``pairs`` the new (key, value) pair.
    """

    persistent_name = "AsyncMap"

    fn: Callable[..., Awaitable[Any]]
    with_key: bool
    pairs: bool
    concurrency: int
    order: Order
    timeout_ms: int
    on_timeout: Callable[..., Any] | None
    on_error: Answer | Chooser | None = None

    def bind(self, ctx: NodeContext) -> ProcessFn:
        forward = ctx.forward

        def forward_value(result: Any, key: Any, timestamp: int, headers: Headers) -> None:
            forward(key, result, timestamp, headers)

        def forward_pair(result: Any, key: Any, timestamp: int, headers: Headers) -> None:
            new_key, value = result
            forward(new_key, value, timestamp, headers)

        return ctx.task.add_async_step(
            ctx.name,
            _by_key_and_value(self.fn, self.with_key),
            forward_pair if self.pairs else forward_value,
            capacity=self.concurrency,
            order=self.order,
            timeout=self.timeout_ms / 1000,
            on_error=self.on_error,
            on_timeout=None if self.on_timeout is None else _by_key_and_value(self.on_timeout, self.with_key),
        )


def _by_key_and_value(fn: Callable[..., Any], with_key: bool) -> Callable[[Any, Any], Any]:
    if with_key:
        return fn
    return lambda key, value: fn(value)
