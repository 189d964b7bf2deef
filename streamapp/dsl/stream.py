"""`Described`: the base class of the DSL's streams, tables and groupings, and functions that append nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from streamapp._base.names import unknown_attribute
from streamapp.dsl.context import Context
from streamapp.dsl.graph import Node
from streamapp.errors import TopologyError
from streamapp.serdes.base import Serde, check_given_serdes

if TYPE_CHECKING:
    from streamapp.dsl.kstream import KStream

__all__ = ["Described", "next_stream", "stream_behind", "with_key_joiner"]

K = TypeVar("K")
V = TypeVar("V")


class Described(Generic[K, V]):
    """The base of streams, tables and groupings: a node of the graph, with the types of its keys and values."""

    _hints: ClassVar[Mapping[str, str]] = {}
    """The names of methods of other libraries that a user may try here -> the right call, for the error."""

    def __init__(
        self,
        context: Context,
        name: str,
        node: Node,
        sources: frozenset[str],
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
    ) -> None:
        check_given_serdes(name, key_serde=key_serde, value_serde=value_serde)
        self._context, self._node, self._sources = context, node, sources
        self.name = name
        self.key_serde = key_serde
        self.value_serde = value_serde

    if not TYPE_CHECKING:  # a type checker knows which attributes there are

        def __getattr__(self, name: str) -> Any:
            raise unknown_attribute(self, name, {} if name.startswith("_") else self._hints)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _same_builder(self, other: Described[Any, Any]) -> None:
        if other._context is not self._context:
            raise TopologyError(
                f"{self.name} and {other.name} come from different builders; describe one topology with one "
                "StreamsBuilder"
            )

    def _copartition(self, *others: Described[Any, Any]) -> frozenset[str]:
        """Notes that this stream or table and the ``others`` need topics with the same number of partitions. Returns
        the names of the source nodes of all, this stream or table included."""
        for other in others:
            self._same_builder(other)
        sources = self._sources.union(*(other._sources for other in others))
        self._context.graph.copartitions.append(sources)
        return sources


def next_stream(
    stream: KStream[Any, Any],
    node: Node,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    *,
    repartition_required: bool,
) -> KStream[Any, Any]:
    """Appends a node to a stream and returns the stream behind the node."""
    stream._context.graph.add(node, stream._node)
    return stream_behind(stream, node, key_serde, value_serde, repartition_required=repartition_required)


def stream_behind(
    stream: KStream[Any, Any],
    node: Node,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    *,
    repartition_required: bool,
) -> KStream[Any, Any]:
    """The stream of the results of ``node``, which was added behind ``stream``."""
    context = stream._context
    return context.faces.stream(
        context,
        node.name,
        node,
        stream._sources,
        key_serde,
        value_serde,
        repartition_required=repartition_required,
    )


def with_key_joiner(joiner: Callable[..., Any], with_key: bool) -> Callable[[Any, Any, Any], Any]:
    """The joiner as a function of key, left and right value, also if the joiner itself takes only the two values."""
    if with_key:
        return joiner
    return lambda key, left, right: joiner(left, right)
