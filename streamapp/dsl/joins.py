"""Builders of a stream's joins with another stream, with a table and with a global table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from streamapp._base.callables import require_function
from streamapp._base.durations import Duration, to_ms
from streamapp._base.names import check_name
from streamapp.dsl.answers import refuse_retry
from streamapp.dsl.global_ktable import GlobalKTable
from streamapp.dsl.graph import Node
from streamapp.dsl.graph_nodes import ProcessorNode
from streamapp.dsl.retry_topics import appended
from streamapp.dsl.steps import Fixed, Step
from streamapp.dsl.stream import stream_behind, with_key_joiner
from streamapp.dsl.stream_joins import StreamJoined, join_streams
from streamapp.dsl.stream_topics import repartitioned_for_join
from streamapp.engine.operator import Operator
from streamapp.engine.operators.stream_table_join import StreamGlobalTableJoin, StreamTableJoin
from streamapp.engine.operators.views import StoreView
from streamapp.errors import ConfigError, TopologyError
from streamapp.on_error import OnError
from streamapp.serdes.base import Serde, check_given_serdes
from streamapp.state import operator_kinds
from streamapp.state.spec import StoreSpec
from streamapp.windows import JoinWindows

if TYPE_CHECKING:
    from streamapp.dsl.kstream import KStream
    from streamapp.dsl.ktable import KTable

__all__ = ["JoinCall", "joined"]

_SERDES = ("key_serde", "value_serde", "other_value_serde")


@dataclass(frozen=True)
class JoinCall:
    """The arguments of `KStream.join`, `KStream.left_join` and `KStream.outer_join`. Some are only for one kind of
    join."""

    kind: Literal["inner", "left", "outer"]
    joiner: Callable[..., Any]
    _: KW_ONLY
    with_key: bool
    windows: JoinWindows | None = None
    stream_joined: StreamJoined | None = None
    key_selector: Callable[[Any, Any], Any] | None = None
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    other_value_serde: Serde[Any] | None = None
    grace: Duration | None = None
    name: str | None = None
    on_error: OnError | None = None

    def check(self, stream: str) -> None:
        """Raises `TopologyError` or `ConfigError` for arguments that are wrong for every kind of join."""
        require_function(
            self.joiner,
            f"the join of {stream}",
            f"a joiner of {'key, ' if self.with_key else ''}left and right value",
            3 if self.with_key else 2,
            key_option=None if self.with_key else "with_key",
        )
        check_given_serdes(f"the join of {stream}", **{part: getattr(self, part) for part in _SERDES})
        if self.stream_joined is not None and not isinstance(self.stream_joined, StreamJoined):
            raise TopologyError(
                f"stream_joined of the join of {stream} is {self.stream_joined!r}; give StreamJoined(name, store_name)"
            )

    def refuse(self, stream: str, join: str, *arguments: str) -> None:
        """Raises `TopologyError` if one of these arguments is given, because it would have no effect in this join."""
        given = [argument for argument in arguments if getattr(self, argument) is not None]
        if given:
            hint = "; name it with stream_joined=StreamJoined(name)" if "name" in given else ""
            raise TopologyError(f"{stream}: a join {join} takes no {', '.join(given)}{hint}")

    def joined_with_serdes(self, stream: str) -> StreamJoined:
        """``stream_joined`` with the serdes of the call. Raises `TopologyError` for a serde that both have."""
        joined = self.stream_joined or StreamJoined()
        for name in _SERDES:
            if (serde := getattr(self, name)) is None:
                continue
            if getattr(joined, name) not in (None, serde):
                raise TopologyError(
                    f"{stream}: {name} of the join is also in stream_joined. Give it only once"
                )
            joined = replace(joined, **{name: serde})
        return joined


def joined(stream: KStream[Any, Any], other: object, call: JoinCall) -> KStream[Any, Any]:
    """The result of a stream's join with a stream, a table or a global table. Raises `TopologyError`."""
    call.check(stream.name)
    faces = stream._context.faces
    if isinstance(other, faces.stream):
        return _join_stream(stream, other, call)
    if isinstance(other, GlobalKTable) and callable(call.windows):
        raise TopologyError(
            f"{stream.name}: a join with a global table takes the joiner as second argument, and the function that "
            "gives the key as key_selector=. Java's order is the other way round"
        )
    call.refuse(stream.name, "with a table", "windows", "stream_joined")
    if call.kind == "outer":
        raise TopologyError(
            f"{stream.name} can have an outer join only with another stream; for a table use left_join()"
        )
    if isinstance(other, GlobalKTable):
        return _join_global_table(stream, other, call)
    if not isinstance(other, faces.table):
        raise TopologyError(f"{stream.name} joins with a KStream, KTable or GlobalKTable, not {other!r}")
    return _join_table(stream, other, call)


def _join_stream(stream: KStream[Any, Any], other: KStream[Any, Any], call: JoinCall) -> KStream[Any, Any]:
    call.refuse(stream.name, "with a stream", "name", "grace", "key_selector")
    if call.windows is None:
        raise TopologyError(f"joining {stream.name} with stream {other.name} needs windows: JoinWindows")
    given = call.joined_with_serdes(stream.name)
    where = f"the join of {stream.name} and {other.name}"
    on_error = refuse_retry(
        call.on_error,
        where,
        "the other stream would join the record, or miss it, while it waits",
        "Let the joiner give both values, and put the function behind it: map_values(on_error=Retry...)",
    )
    if on_error is not None and call.kind != "inner":
        raise TopologyError(
            f"{where} is a {call.kind} join and cannot have on_error. Its joiner also gets records that have waited "
            "for a match, whose source is not known any more. Let the joiner give both values, and put the function "
            "behind the join: map_values(on_error=...)"
        )
    return join_streams(stream, other, call.joiner, call.windows, call.with_key, given, call.kind, on_error)


def _join_table(stream: KStream[Any, Any], table: KTable[Any, Any], call: JoinCall) -> KStream[Any, Any]:
    """The join with a table, which looks up a row for each record: at once, or a grace period later."""
    call.refuse(stream.name, "with a table", "key_selector")
    name, value_serde, left = call.name, call.value_serde, call.kind == "left"
    if name is not None:
        check_name(name)
    if stream.repartition_required:
        prefix = name or stream.name
        stream = repartitioned_for_join(stream, prefix, name is not None, call.key_serde, value_serde)
    sources = stream._copartition(table)
    context = stream._context
    node_name = context.names.given_or_new(name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
    view = table._step.view()
    key_serde = call.key_serde or stream.key_serde
    grace_ms = buffer = None
    if call.grace is not None:
        grace_ms = to_ms(call.grace, "the grace period")
        _check_grace(stream, table, grace_ms, view.store_names)
        buffer = StoreSpec(
            name=f"{node_name}-Buffer",
            kind=operator_kinds.TimeOrdered(grace_ms=grace_ms),
            key_serde=context.key_serde(key_serde, node_name),
            value_serde=context.value_serde(value_serde or stream.value_serde, node_name),
            internal=True,
        )
        context.stores[buffer.name] = buffer
        if name is None:
            context.names.note_generated(store=buffer.name, changelog=f"{buffer.name}-changelog")
    operator = StreamTableJoin(table=view, joiner=with_key_joiner(call.joiner, call.with_key), left=left)
    node: Node
    if buffer is None:
        node = _look_up(
            stream, operator, call, node_name, view.store_names, key_serde, value_serde or stream.value_serde
        )
    else:
        on_error = refuse_retry(
            call.on_error,
            node_name,
            "its records wait in a buffer already, in the order of time",
            "Put the function behind it: map_values(on_error=Retry...)",
        )
        buffered = replace(operator, grace_ms=grace_ms, buffer_store=buffer.name, on_error=on_error)
        node = ProcessorNode(node_name, Fixed(buffered, buffer), view.store_names)
        node.relaxed_null_keys = left
        context.graph.add(node, stream._node)
    return context.faces.stream(context, node_name, node, sources, key_serde, None)


def _look_up(
    stream: KStream[Any, Any],
    operator: Operator,
    call: JoinCall,
    name: str,
    stores: tuple[str, ...],
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> Node:
    """Appends a join that looks up a row for each record. Returns the node that has the results."""

    def node_of(name: str, step: Step) -> ProcessorNode:
        node = ProcessorNode(name, step, stores)
        node.relaxed_null_keys = call.kind == "left"
        return node

    return appended(
        stream,
        operator,
        call.on_error,
        name,
        node_of,
        key_serde,
        value_serde,
        named=call.name is not None,
    )


def _check_grace(
    stream: KStream[Any, Any], table: KTable[Any, Any], grace_ms: int, store_names: tuple[str, ...]
) -> None:
    join = f"joining {stream.name} with {table.name} after a grace period"
    if grace_ms < 0:
        raise ConfigError(f"{join}: the grace period must not be negative, got {grace_ms} ms")
    for store in store_names:
        history_ms = stream._context.stores[store].kind.history_ms
        if history_ms is None:
            raise TopologyError(
                f"{join} needs a versioned table; give it Materialized(history_retention=...), or leave "
                "grace out"
            )
        if history_ms < grace_ms:
            raise ConfigError(
                f"{join}: the table's history of {history_ms} ms has to reach back at least the grace "
                f"period of {grace_ms} ms; make history_retention larger"
            )


def _join_global_table(
    stream: KStream[Any, Any], table: GlobalKTable[Any, Any], call: JoinCall
) -> KStream[Any, Any]:
    """The join with a global table, which looks up a row for each record, by the key that ``key_selector`` gives."""
    call.refuse(stream.name, "with a global table", "grace")
    key_selector = call.key_selector
    if key_selector is None:
        raise TopologyError(
            f"joining {stream.name} with a global table needs key_selector, a function of key and value"
        )
    require_function(key_selector, f"the join of {stream.name}", "a key selector of key and value", 2)
    context = stream._context
    # Java names both kinds of global joins LEFTJOIN.
    node_name = context.names.given_or_new(call.name, "KSTREAM-LEFTJOIN-")
    operator = StreamGlobalTableJoin(
        table=StoreView(table.store_name),
        key_selector=key_selector,
        joiner=with_key_joiner(call.joiner, call.with_key),
        left=call.kind == "left",
    )
    node = _look_up(stream, operator, call, node_name, (), stream.key_serde, stream.value_serde)
    return stream_behind(
        stream, node, stream.key_serde, None, repartition_required=stream.repartition_required
    )
