"""`own_cancellation`: tells a ``CancelledError`` of the application's code from a real cancellation."""

from __future__ import annotations

import asyncio

__all__ = ["own_cancellation"]


def own_cancellation(error: asyncio.CancelledError) -> RuntimeError | None:
    """The failure behind a ``CancelledError`` that has come out of a coroutine of the application.

    None: somebody has cancelled the running asyncio task, so its caller has to pass ``error`` on. Otherwise the
    coroutine has raised ``error`` on its own account, and has not done its work.

    >>> async def waits_for_another_task():
    ...     other = asyncio.ensure_future(asyncio.sleep(60))
    ...     other.cancel()
    ...     try:
    ...         await other
    ...     except asyncio.CancelledError as error:
    ...         return own_cancellation(error)
    >>> asyncio.run(waits_for_another_task())
    RuntimeError('CancelledError, but nobody has cancelled this call: what the call waits for was cancelled')
    """
    task = asyncio.current_task()
    if task is None or task.cancelling():
        return None
    failure = RuntimeError(
        "CancelledError, but nobody has cancelled this call: what the call waits for was cancelled"
    )
    failure.__cause__ = error
    return failure.with_traceback(error.__traceback__)
