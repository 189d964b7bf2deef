"""``on_error`` of tables: if the user's function raises for a row, and ``on_error`` does not stop the task, the row is
not in the result.

The row is missing as if the function had returned None. The same function is called again when a join reads the row,
and when a later change needs the row's old value. If the function raises in these calls, the result is None, too, so
that all results agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamapp.engine.judging import ProcessingFailed, no_fault_of_the_record, service_failed
from streamapp.engine.operator import NodeContext
from streamapp.on_error import Answer, Chooser

__all__ = ["OrNone", "new_and_old", "or_none"]


class OrNone:
    """The user's function, but with the result None where the function raises. An earlier call has handled the error.

    Errors of the disk, the brokers or the schema registry are still raised. So are failures of services, unless
    ``on_error`` is "continue", with which the first call drops such a row, too. `OrNone` is a class, and not a nested
    function, so that it can be pickled.

    >>> OrNone(int, "skip")("x") is None
    True
    """

    def __init__(self, function: Callable[..., Any], on_error: Answer | Chooser) -> None:
        self._function = function
        self._drops_all = on_error == "continue"

    def __call__(self, *arguments: Any) -> Any:
        try:
            return self._function(*arguments)
        except Exception as error:
            if isinstance(error, ProcessingFailed) or no_fault_of_the_record(error):
                raise
            if service_failed(error) and not self._drops_all:
                raise
            return None


def or_none(function: Callable[..., Any], on_error: Answer | Chooser | None) -> Callable[..., Any]:
    """The function for readers of the table: `OrNone`, or the function itself without ``on_error``."""
    return function if on_error is None else OrNone(function, on_error)


def new_and_old(
    ctx: NodeContext,
    function: Callable[..., Any],
    on_error: Answer | Chooser | None,
    instead: Any = None,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Two functions, for new and for old values of rows.

    If the user's function raises, the first one handles the exception by ``on_error`` and returns ``instead``. The
    second one returns None, because the exception was handled when the old value was new.
    """
    if on_error is None:
        return function, function
    failures, name = ctx.failures, ctx.name

    def of_new(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            failures.operator(error, name, on_error)
            return instead

    return of_new, OrNone(function, on_error)
