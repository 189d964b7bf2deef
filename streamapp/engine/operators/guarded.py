"""`Guarded`: an operator with ``on_error``, which decides about the operator's exceptions instead of the configured
exception handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamapp.engine.judging import ProcessingFailed, no_fault_of_the_record
from streamapp.engine.operator import NodeContext, Operator, OperatorFailures, ProcessFn, TaskContext
from streamapp.on_error import Answer, Chooser
from streamapp.records import Headers
from streamapp.state.spec import StoreSpec

__all__ = ["Guarded", "HeldContext", "guarded"]


class HeldContext:
    """A `NodeContext` that holds an operator's results back until its function returns.

    So a record whose function raises halfway gives no results at all.
    """

    def __init__(self, ctx: NodeContext) -> None:
        self._ctx = ctx
        self.name: str = ctx.name
        self.task: TaskContext = ctx.task
        self._held: list[tuple[ProcessFn, Any, Any, int, Headers]] = []
        self.forward: ProcessFn = self._holder(ctx.forward)

    def forward_to(self, child: str) -> ProcessFn:
        return self._holder(self._ctx.forward_to(child))

    def drop(self, reason: str, count: int = 1, *, in_total: bool = True) -> None:
        self._ctx.drop(reason, count, in_total=in_total)

    @property
    def failures(self) -> OperatorFailures:
        return self._ctx.failures

    def handled(self, function: Callable[..., None]) -> Callable[..., None]:
        return self._ctx.handled(function)

    def store(self, name: str) -> Any:
        return self._ctx.store(name)

    def release(self) -> None:
        """Hands on the results that are held."""
        held = self._held
        if len(held) == 1:
            target, key, value, timestamp, headers = held.pop()
            target(key, value, timestamp, headers)
            return
        results = held[:]
        held.clear()
        for target, key, value, timestamp, headers in results:
            target(key, value, timestamp, headers)

    def discard(self) -> None:
        """Forgets the results that are held."""
        self._held.clear()

    def _holder(self, target: ProcessFn) -> ProcessFn:
        hold = self._held.append

        def holder(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            hold((target, key, value, timestamp, headers))

        return holder


@dataclass(frozen=True)
class Guarded(Operator):
    """Runs an operator, and follows ``on_error`` for its exceptions instead of the configured exception handler.

    With ``holds``, results wait until the operator is done with the record, so an exception leaves none of them.
    Aggregations and a user's processor run without ``holds``: results that they forward before an exception stay.

    ``on_error`` does not answer exceptions of the operators downstream. Errors of the disk, the brokers or the schema
    registry are raised again. If a service has failed (`FAILURES`), ``on_error="skip"`` and ``on_error="dead_letter"``
    stop the worker, but ``on_error="continue"`` drops the record.
    """

    persistent_name = "Guarded"

    operator: Operator
    on_error: Answer | Chooser
    holds: bool = True

    @property
    def side_outputs(self) -> tuple[str, ...]:
        return self.operator.side_outputs

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The stores that come with a user's processor."""
        return getattr(self.operator, "stores", ())

    def bind(self, ctx: NodeContext) -> ProcessFn:
        return self._bind_held(ctx) if self.holds else self._bind_directly(ctx)

    def _bind_held(self, ctx: NodeContext) -> ProcessFn:
        held, failures, name, on_error = HeldContext(ctx), ctx.failures, ctx.name, self.on_error
        run, release, discard = self.operator.bind(held), held.release, held.discard

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                run(key, value, timestamp, headers)
            except Exception as error:
                discard()
                failures.operator(error, name, on_error)
                return
            release()

        return process

    def _bind_directly(self, ctx: NodeContext) -> ProcessFn:
        below = _Below(ctx)
        run, failures, name, on_error = self.operator.bind(below), ctx.failures, ctx.name, self.on_error

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            below.raised = None
            try:
                run(key, value, timestamp, headers)
            except ProcessingFailed:
                raise
            except Exception as error:
                if error is below.raised or no_fault_of_the_record(error):
                    raise
                failures.operator(error, name, on_error)

        return process


def guarded(operator: Operator, on_error: Answer | Chooser | None, *, holds: bool) -> Operator:
    """The operator as `Guarded`, or the operator itself if ``on_error`` is None."""
    return operator if on_error is None else Guarded(operator, on_error, holds)


class _Below(HeldContext):
    """A `NodeContext` that hands results on at once, and remembers exceptions of operators downstream."""

    raised: Exception | None = None

    def _holder(self, target: ProcessFn) -> ProcessFn:
        def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                target(key, value, timestamp, headers)
            except Exception as error:
                self.raised = error
                raise

        return forward
