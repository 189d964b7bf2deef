"""Calls that may wait for a schema registry, for code on an event loop. A registry that is away must not stop the loop.

The call first runs on the loop (`unless_asking`). Most calls need no answer of a registry, and are then done. Otherwise
the call raises `MustAsk` instead of waiting, and runs again in a thread (`aside`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["MustAsk", "aside", "before_asking", "unless_asking"]

T = TypeVar("T")


class MustAsk(BaseException):
    """A call on an event loop would have to wait for a registry. No ``except Exception`` of a serde catches it."""


class _OnLoop(threading.local):
    now = False
    """True while this thread runs a call that must not wait."""


_on_loop = _OnLoop()


def before_asking() -> None:
    """Raises `MustAsk` if the present call must not wait for a registry."""
    if _on_loop.now:
        raise MustAsk


def unless_asking(call: Callable[[], T]) -> T:
    """The result of the call. Raises `MustAsk` if the call needs an answer of a registry.

    >>> unless_asking(lambda: 7)
    7
    """
    _on_loop.now = True
    try:
        return call()
    finally:
        _on_loop.now = False


async def aside(call: Callable[[], T], name: str) -> T:
    """The result of the call, which runs in a thread of this name while the event loop goes on.

    The thread does not hold up the end of the process, unlike the threads of `asyncio.to_thread`.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(call())
        except StopIteration as exc:  # no future of asyncio takes it, so the caller would wait for ever
            error = RuntimeError("the call raised StopIteration")
            error.__cause__ = exc
            outcome.set_exception(error)
        except BaseException as exc:
            outcome.set_exception(exc)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(outcome)
