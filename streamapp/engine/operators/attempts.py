"""The decision of a `Retry` after a failed attempt, and the attempts on a runner where no record can wait (Spark)."""

from __future__ import annotations

from typing import Any, Literal

from streamapp.engine.judging import ProcessingFailed, no_fault_of_the_record, service_failed, short
from streamapp.engine.operator import NodeContext, Operator, ProcessFn
from streamapp.engine.operators.guarded import HeldContext
from streamapp.errors import StreamsError, UnsupportedOperation
from streamapp.on_error import ANSWERS, Answer, Retry
from streamapp.records import Headers

__all__ = ["Verdict", "bind_at_once", "verdict"]

Verdict = Answer | Literal["retry", "pause"]
"""An answer, "retry", or "pause" after the failure of a service, which does not count as an attempt."""


def verdict(retry: Retry, ctx: NodeContext, error: Exception, attempt: int) -> Verdict:
    """The decision of a `Retry` after a failed attempt, for example "retry".

    "pause" means that a service has failed (an exception in ``failures`` of the `Retry`), so attempts wait until the
    service is back. For any other error the function ``choose`` of the `Retry` decides; without ``choose``, the
    decision is "retry".

    Raises `ProcessingFailed` if ``choose`` raises or returns no answer.
    """
    if service_failed(error, retry.failures):
        return "pause"
    if retry.choose is None:
        return "retry"
    try:
        answer = retry.choose(ctx.failures.context(ctx.name, attempt), error)
    except Exception as fatal:
        raise ProcessingFailed(
            f"the function choose= in the Retry of {ctx.name} itself failed ({short(fatal)}) when it was asked "
            f"about {short(error)}"
        ) from fatal
    if answer not in (*ANSWERS, "retry"):
        raise ProcessingFailed(
            f"the function choose= in the Retry of {ctx.name} must return one of retry, {', '.join(ANSWERS)}, not "
            f"{answer!r}"
        )
    return answer


def bind_at_once(ctx: NodeContext, operator: Operator, retry: Retry, store: str) -> ProcessFn:
    """Binds an operator with a `Retry` on Spark, where no record is parked: all attempts follow each other at once.

    So the order of all records stays. If a service fails, the run ends with `ProcessingFailed`, because waiting is not
    possible. The user starts the run again when the service is back.

    Raises `UnsupportedOperation` if the number of attempts has no limit, and `StreamsError` if a worker has left parked
    records.
    """
    if retry.times is None:
        raise UnsupportedOperation(
            ctx.name,
            "Spark",
            "its Retry has times=None, and a record that always fails would be tried for ever",
            "Give Retry a number of times, or run this topology on workers",
        )
    if next(iter(ctx.store(store).all()), None) is not None:
        raise StreamsError(
            f"records wait for a retry in {store}, but records cannot wait on Spark: run workers until no record waits "
            "any more (streamapp_parked_records in /metrics)"
        )
    held, failures, name, times = HeldContext(ctx), ctx.failures, ctx.name, retry.times
    run, release, discard = operator.bind(held), held.release, held.discard

    def failed(error: Exception, attempt: int) -> bool:
        """Returns True if the record is tried again."""
        if isinstance(error, ProcessingFailed) or no_fault_of_the_record(error):
            raise error
        answer = verdict(retry, ctx, error, attempt)
        if answer == "pause":
            raise ProcessingFailed(
                f"{name}: a service fails ({short(error)}); start the run again when the service answers"
            ) from error
        if answer == "retry":
            if attempt <= times:
                return True
            answer = retry.then
        reason = "retries_exhausted" if answer == retry.then else "skipped"
        failures.settle(error, name, answer, attempt=attempt, reason=reason)
        return False

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        attempt = 1
        while True:
            try:
                run(key, value, timestamp, headers)
                break
            except Exception as error:
                discard()
                if not failed(error, attempt):
                    return
            attempt += 1
        release()

    return process
