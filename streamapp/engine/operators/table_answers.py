"""``on_error`` of tables: a row whose function raises is not in the result, as if the function had returned None.

The result stays a function of the source table. A join that reads the row, and a later change that takes the old value
back, get the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamapp.engine.failures import NO_FAULT_OF_THE_RECORD, ProcessingFailed
from streamapp.engine.operator import NodeContext
from streamapp.on_error import FAILURES, Answer, Chooser

__all__ = ["OrNone", "new_and_old", "or_none"]


class OrNone:
    """A function that gives None where the user's function raises: somebody has answered for that row already.

    A failure of a service still raises. A class, so that it can be pickled.

    >>> OrNone(int)("x") is None
    True
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        try:
            return self._function(*arguments)
        except Exception as error:
            if isinstance(error, (ProcessingFailed, *NO_FAULT_OF_THE_RECORD, *FAILURES)):
                raise
            return None


def or_none(function: Callable[..., Any], on_error: Answer | Chooser | None) -> Callable[..., Any]:
    """The function for readers of the table. Without ``on_error`` it is the function itself."""
    return function if on_error is None else OrNone(function)


def new_and_old(
    ctx: NodeContext,
    function: Callable[..., Any],
    on_error: Answer | Chooser | None,
    instead: Any = None,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function for new values, which answers for an exception and gives ``instead``, and the function for old
    values."""
    if on_error is None:
        return function, function
    failures, name = ctx.failures, ctx.name

    def of_new(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            failures.operator(error, name, on_error)
            return instead

    return of_new, OrNone(function)
