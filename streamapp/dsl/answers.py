"""``on_error=`` of the DSL: puts an operator into a wrapper that carries out the answer, and refuses answers that do
not fit the operator."""

from __future__ import annotations

from typing import Any

from streamapp._base.names import check_name
from streamapp.dsl.context import Context
from streamapp.dsl.steps import Fixed
from streamapp.engine.operator import Operator
from streamapp.engine.operators.guarded import Guarded
from streamapp.engine.operators.parking import Parking
from streamapp.engine.operators.processor import ProcessorOperator
from streamapp.engine.operators.staged import Staged
from streamapp.errors import TopologyError
from streamapp.on_error import Answer, Chooser, OnError, Retry, check_on_error
from streamapp.serdes import BytesSerde
from streamapp.serdes.base import Serde
from streamapp.state.kinds import KeyValue
from streamapp.state.spec import StoreSpec

__all__ = [
    "answer_of_aggregation",
    "answer_of_table",
    "answered",
    "refuse_answers",
    "refuse_retry",
    "staged",
]


def answered(
    context: Context,
    operator: Operator,
    on_error: OnError | None,
    name: str,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> Fixed:
    """The step of a stream's operator with its ``on_error``.

    ``key_serde`` and ``value_serde`` belong to the records that the operator gets. They encode records that wait,
    unless the `Retry` has serdes of its own.
    """
    if on_error is None:
        return Fixed(operator)
    check_on_error(on_error, name)
    is_processor = isinstance(operator, ProcessorOperator)
    if not isinstance(on_error, Retry):
        return Fixed(Guarded(operator, on_error, holds=not is_processor))
    if is_processor:
        raise TopologyError(
            f"{name} is a processor, and cannot have on_error=Retry: what a processor has written and forwarded before "
            "an error cannot be taken back. Put the call that may fail into map_values(on_error=Retry...) before "
            'the processor, or use "skip" or "dead_letter"'
        )
    keys, values = _serdes_of(on_error, context, name, key_serde, value_serde)
    store = f"{name}-parked"
    spec = StoreSpec[Any](
        name=store,
        kind=KeyValue(),
        key_serde=BytesSerde(),
        value_serde=BytesSerde(),
        persistent=context.config.dsl_store_type == "rocksdb",
        internal=True,
    )
    return Fixed(Parking(operator, on_error, store, keys, values), spec)


def staged(
    context: Context,
    operator: Operator,
    on_error: OnError | None,
    name: str,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> Staged | None:
    """The operator with retry topics; None if ``on_error`` is not `Retry.topics`, or if the operator is a processor."""
    if not isinstance(on_error, Retry) or on_error.by != "topic" or isinstance(operator, ProcessorOperator):
        return None
    keys, values = _serdes_of(on_error, context, name, key_serde, value_serde)
    sinks = tuple(f"{name}-retry-{stage}-sink" for stage in range(1, len(on_error.delays) + 1))
    return Staged(operator, on_error, check_name(name), sinks, keys, values)


def _serdes_of(
    retry: Retry, context: Context, name: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None
) -> tuple[Serde[Any], Serde[Any]]:
    keys = retry.key_serde or key_serde or context.config.default_key_serde
    values = retry.value_serde or value_serde or context.config.default_value_serde
    for part, serde in (("key", keys), ("value", values)):
        if serde is None:
            raise TopologyError(
                f"records of {name} wait for their retry, but there is no serde for their {part}s. Give the Retry "
                f"a {part}_serde, or set default_{part}_serde in the StreamsConfig that StreamsBuilder gets"
            )
    assert keys is not None
    assert values is not None
    return keys, values


def refuse_retry(on_error: OnError | None, where: str, why: str, instead: str) -> Answer | Chooser | None:
    """The ``on_error`` of an operator whose records cannot wait. Raises `TopologyError` for a `Retry`."""
    if on_error is None:
        return None
    check_on_error(on_error, where)
    if isinstance(on_error, Retry):
        raise TopologyError(f"{where} cannot have on_error=Retry: {why}. {instead}")
    return on_error


def answer_of_table(on_error: OnError | None, where: str) -> Answer | Chooser | None:
    """The ``on_error`` of an operator of tables. Raises `TopologyError` for a `Retry`."""
    return refuse_retry(
        on_error,
        where,
        "while a change waits, all readers of the table would miss this change",
        "Put the call that may fail before the table: stream.map_values(on_error=Retry...).to_table()",
    )


def answer_of_aggregation(on_error: OnError | None, where: str) -> Answer | Chooser | None:
    """The ``on_error`` of an aggregation of a stream. Raises `TopologyError` for a `Retry`."""
    return refuse_retry(
        on_error,
        where,
        "its function changes the aggregate, and windows may close while a record waits",
        "Put the call that may fail into map_values(on_error=Retry...) before the aggregation",
    )


def refuse_answers(on_error: OnError | None, where: str) -> None:
    """Raises `TopologyError` if an aggregation of a table has ``on_error``.

    When a row changes, such an aggregation subtracts the row's old value. A value that was not added because of an
    error must not be subtracted later.
    """
    if on_error is not None:
        raise TopologyError(
            f"{where} cannot have on_error. If a value was left out after an error, a later change of its row would "
            "subtract a value that was never added. Check the rows earlier: group_by(on_error=...) leaves out each "
            "row for which its function raises"
        )
