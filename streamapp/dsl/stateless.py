"""Builders of a stream's stateless operators, such as ``filter`` and ``map``, and of its processors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamapp._base.callables import check_supplier, require_function, stores_of
from streamapp._base.names import check_name
from streamapp.dsl.answers import answered
from streamapp.dsl.arguments import check_stores
from streamapp.dsl.graph import Node
from streamapp.dsl.graph_nodes import ProcessorNode
from streamapp.dsl.retry_topics import appended
from streamapp.dsl.steps import Fixed, Step
from streamapp.dsl.stream import next_stream, stream_behind
from streamapp.engine.operator import Operator
from streamapp.engine.operators.processor import ProcessorOperator
from streamapp.engine.operators.stateless import (
    Filter,
    FlatMap,
    FlatMapValues,
    ForEach,
    Map,
    MapValues,
    Peek,
    SelectKey,
)
from streamapp.on_error import OnError
from streamapp.serdes.base import Serde

if TYPE_CHECKING:
    from streamapp.dsl.kstream import KStream

__all__ = [
    "change_key",
    "change_value",
    "filtered",
    "flat_mapped",
    "foreach",
    "mapped",
    "peeked",
    "processed",
    "with_key_selected",
    "with_values_flat_mapped",
    "with_values_mapped",
    "with_values_processed",
]

Function = Callable[..., Any]


def filtered(
    stream: KStream[Any, Any],
    predicate: Function,
    name: str | None,
    on_error: OnError | None,
    *,
    negate: bool = False,
) -> KStream[Any, Any]:
    """The stream behind `KStream.filter`, or with ``negate`` behind `KStream.filter_not`."""
    method = "filter_not" if negate else "filter"
    require_function(predicate, f"{method}() of {stream.name}", "a predicate of key and value", 2)
    return _keep(stream, Filter(predicate, negate=negate), "KSTREAM-FILTER-", name, on_error)


def mapped(
    stream: KStream[Any, Any], fn: Function, name: str | None, on_error: OnError | None
) -> KStream[Any, Any]:
    """The stream behind `KStream.map`."""
    what = "a function of key and value that returns (key, value)"
    require_function(fn, f"map() of {stream.name}", what, 2)
    return change_key(stream, Map(fn), "KSTREAM-MAP-", name, on_error)


def with_values_mapped(
    stream: KStream[Any, Any], fn: Function, with_key: bool, name: str | None, on_error: OnError | None
) -> KStream[Any, Any]:
    """The stream behind `KStream.map_values`."""
    require_function(
        fn,
        f"map_values() of {stream.name}",
        "a function of key and value" if with_key else "a function of the value",
        2 if with_key else 1,
        key_option=None if with_key else "with_key",
    )
    return change_value(stream, MapValues(fn, with_key), "KSTREAM-MAPVALUES-", name, on_error)


def flat_mapped(
    stream: KStream[Any, Any], fn: Function, name: str | None, on_error: OnError | None
) -> KStream[Any, Any]:
    """The stream behind `KStream.flat_map`."""
    what = "a function of key and value that returns (key, value) pairs"
    require_function(fn, f"flat_map() of {stream.name}", what, 2)
    return change_key(stream, FlatMap(fn), "KSTREAM-FLATMAP-", name, on_error)


def with_values_flat_mapped(
    stream: KStream[Any, Any], fn: Function, with_key: bool, name: str | None, on_error: OnError | None
) -> KStream[Any, Any]:
    """The stream behind `KStream.flat_map_values`."""
    what = "a function of key and value" if with_key else "a function of the value"
    operator = f"flat_map_values() of {stream.name}"
    require_function(fn, operator, f"{what} that returns values", 2 if with_key else 1)
    return change_value(stream, FlatMapValues(fn, with_key), "KSTREAM-FLATMAPVALUES-", name, on_error)


def with_key_selected(
    stream: KStream[Any, Any], fn: Function, name: str | None, on_error: OnError | None
) -> KStream[Any, Any]:
    """The stream behind `KStream.select_key`."""
    what = "a function of key and value that returns the new key"
    require_function(fn, f"select_key() of {stream.name}", what, 2)
    return change_key(stream, SelectKey(fn), "KSTREAM-KEY-SELECT-", name, on_error, stream.value_serde)


def peeked(
    stream: KStream[Any, Any], fn: Function, name: str | None, on_error: OnError | None
) -> KStream[Any, Any]:
    """The stream behind `KStream.peek`."""
    require_function(fn, f"peek() of {stream.name}", "a function of key and value", 2)
    return _keep(stream, Peek(fn), "KSTREAM-PEEK-", name, on_error)


def foreach(stream: KStream[Any, Any], fn: Function, name: str | None, on_error: OnError | None) -> None:
    """Adds the operator of `KStream.foreach`."""
    require_function(fn, f"foreach() of {stream.name}", "a function of key and value", 2)
    _keep(stream, ForEach(fn), "KSTREAM-FOREACH-", name, on_error)


def processed(
    stream: KStream[Any, Any],
    supplier: Function,
    stores: tuple[str, ...],
    name: str | None,
    on_error: OnError | None,
) -> KStream[Any, Any]:
    """The stream behind `KStream.process`."""
    node = _processor(stream, supplier, stores, "KSTREAM-PROCESSOR-", name, on_error, fixed_key=False)
    return next_stream(stream, node, None, None, repartition_required=True)


def with_values_processed(
    stream: KStream[Any, Any],
    supplier: Function,
    stores: tuple[str, ...],
    name: str | None,
    on_error: OnError | None,
) -> KStream[Any, Any]:
    """The stream behind `KStream.process_values`."""
    node = _processor(stream, supplier, stores, "KSTREAM-PROCESSVALUES-", name, on_error, fixed_key=True)
    return next_stream(stream, node, stream.key_serde, None, repartition_required=stream.repartition_required)


def change_value(
    stream: KStream[Any, Any], operator: Operator, prefix: str, name: str | None, on_error: OnError | None
) -> KStream[Any, Any]:
    """Appends an operator that changes values and keeps keys."""
    node_name = stream._context.names.given_or_new(name, prefix)
    node = _appended(stream, operator, on_error, node_name, name is not None, value_changing=True)
    return stream_behind(
        stream, node, stream.key_serde, None, repartition_required=stream.repartition_required
    )


def change_key(
    stream: KStream[Any, Any],
    operator: Operator,
    prefix: str,
    name: str | None,
    on_error: OnError | None,
    value_serde: Serde[Any] | None = None,
) -> KStream[Any, Any]:
    """Appends an operator that may change keys."""
    node_name = stream._context.names.given_or_new(name, prefix)
    node = _appended(stream, operator, on_error, node_name, name is not None, key_changing=True)
    return stream_behind(stream, node, None, value_serde, repartition_required=True)


def _keep(
    stream: KStream[Any, Any], operator: Operator, prefix: str, name: str | None, on_error: OnError | None
) -> KStream[Any, Any]:
    node_name = stream._context.names.given_or_new(name, prefix)
    node = _appended(stream, operator, on_error, node_name, name is not None)
    return stream_behind(
        stream,
        node,
        stream.key_serde,
        stream.value_serde,
        repartition_required=stream.repartition_required,
    )


def _processor(
    stream: KStream[Any, Any],
    supplier: Function,
    stores: tuple[str, ...],
    prefix: str,
    name: str | None,
    on_error: OnError | None,
    *,
    fixed_key: bool,
) -> ProcessorNode:
    node_name = check_name(name) if name is not None else stream._context.names.new(prefix)
    given = check_supplier(supplier, node_name, "process", 1)
    check_stores(stores, node_name)
    operator = ProcessorOperator(supplier, fixed_key, stores_of(supplier, given))
    return ProcessorNode(node_name, _answered(stream, operator, on_error, node_name), stores)


def _appended(
    stream: KStream[Any, Any],
    operator: Operator,
    on_error: OnError | None,
    name: str,
    named: bool,
    *,
    key_changing: bool = False,
    value_changing: bool = False,
) -> Node:
    """Appends an operator to the stream. Returns the node that has the operator's results."""

    def node_of(name: str, step: Step) -> ProcessorNode:
        return ProcessorNode(name, step, key_changing=key_changing, value_changing=value_changing)

    return appended(
        stream, operator, on_error, name, node_of, stream.key_serde, stream.value_serde, named=named
    )


def _answered(stream: KStream[Any, Any], operator: Operator, on_error: OnError | None, name: str) -> Fixed:
    return answered(stream._context, operator, on_error, name, stream.key_serde, stream.value_serde)
