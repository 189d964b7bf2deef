"""The builder of a join of two streams, and `StreamJoined`, its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from streamapp._base.flags import check_flags
from streamapp._base.names import check_name
from streamapp.dsl.graph_nodes import ProcessorNode, StreamJoinNode
from streamapp.dsl.materialize import check_serdes, keeps_headers
from streamapp.dsl.steps import Fixed, StreamJoinStep
from streamapp.dsl.stream import with_key_joiner
from streamapp.dsl.stream_topics import repartitioned_for_join
from streamapp.engine.operators.guarded import guarded
from streamapp.engine.operators.stream_join import StreamJoinWindow, StreamStreamJoin, StreamStreamSelfJoin
from streamapp.errors import ConfigError, TopologyError
from streamapp.on_error import Answer, Chooser
from streamapp.serdes.base import Serde
from streamapp.serdes.primitives import VoidSerde
from streamapp.state import kinds, operator_kinds
from streamapp.state.formats import LeftOrRightSerde
from streamapp.state.spec import StoreSpec
from streamapp.windows import JoinWindows

if TYPE_CHECKING:
    from streamapp.dsl.joined import JoinedKStream
    from streamapp.dsl.kstream import KStream

__all__ = ["StreamJoined", "join_streams"]


@dataclass(frozen=True)
class StreamJoined:
    """The settings of a stream-stream join: its names, serdes and stores. (Kafka Streams: ``StreamJoined``.)

    ``name`` is part of the names of the join's operators and repartition topics. ``store_name`` is part of the names of
    its stores and their changelogs. ``key_serde``, ``value_serde`` and ``other_value_serde`` (of the other stream)
    encode the records in these topics and stores; the default is the serdes of the streams. ``store_type`` is "rocksdb"
    or "in_memory" (default: ``dsl_store_type`` of the configuration). ``logging`` is False for stores without
    changelogs; ``topic_config`` has settings of the changelogs.

    >>> from streamapp import StreamsBuilder, StringSerde
    >>> text, builder = {"key_serde": StringSerde(), "value_serde": StringSerde()}, StreamsBuilder()
    >>> from streamapp import JoinWindows
    >>> clicks, views = (builder.stream(topic, **text) for topic in ("clicks", "views"))
    >>> near = JoinWindows.of_time_difference_with_no_grace(10)
    >>> _ = clicks.join(views, "{} on {}".format, near, stream_joined=StreamJoined("pairs", "pairs"))
    >>> [topic.name for topic in builder.build().plan().internal_topics]
    ['streamapp-pairs-this-join-store-changelog', 'streamapp-pairs-other-join-store-changelog']
    """

    name: str | None = None
    store_name: str | None = None
    _: KW_ONLY
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    other_value_serde: Serde[Any] | None = None
    store_type: Literal["rocksdb", "in_memory"] | None = None
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for given in (self.name, self.store_name):
            if given is not None:
                check_name(given)
        check_serdes(self, "StreamJoined")
        check_flags("StreamJoined", logging=self.logging)
        if self.store_type not in (None, "rocksdb", "in_memory"):
            raise ConfigError(f"store_type has to be 'rocksdb' or 'in_memory', got {self.store_type!r}")


def join_streams(
    left: KStream[Any, Any],
    right: KStream[Any, Any],
    joiner: Callable[..., Any],
    windows: JoinWindows,
    with_key: bool,
    given: StreamJoined,
    kind: Literal["inner", "left", "outer"],
    on_error: Answer | Chooser | None = None,
) -> JoinedKStream[Any, Any, Any, Any]:
    """Adds two window stores, a join node for each side, and a merger of their results.

    A left or outer join also gets a store of the records without a match. With windows of `JoinWindows.of` there is no
    such store, because records without a match are emitted at once.

    Source: ``KStreamImplJoin``.
    """
    if not isinstance(windows, JoinWindows):
        raise TopologyError(f"joining {left.name} with {right.name} needs JoinWindows, got {windows!r}")
    context, names = left._context, left._context.names
    for_left, for_right = given.name and f"{given.name}-left", given.name and f"{given.name}-right"
    named = given.name is not None
    if left.repartition_required:
        left = repartitioned_for_join(left, for_left or left.name, named, given.key_serde, given.value_serde)
    if right.repartition_required:
        right = repartitioned_for_join(
            right, for_right or right.name, named, given.key_serde, given.other_value_serde
        )
    left._copartition(right)

    left_outer, right_outer = kind != "inner", kind == "outer"
    this_suffix = "-outer-this-join" if right_outer else "-this-join"
    other_suffix = "-outer-other-join" if left_outer else "-other-join"
    this_window = names.suffixed_or_new(given.name, "-this-windowed", "KSTREAM-WINDOWED-")
    other_window = names.suffixed_or_new(given.name, "-other-windowed", "KSTREAM-WINDOWED-")
    this_generated = names.new("KSTREAM-OUTERTHIS-" if right_outer else "KSTREAM-JOINTHIS-")
    other_generated = names.new("KSTREAM-OUTEROTHER-" if left_outer else "KSTREAM-JOINOTHER-")
    this_name = f"{given.name}{this_suffix}" if given.name else this_generated
    other_name = f"{given.name}{other_suffix}" if given.name else other_generated
    merge_name = names.suffixed_or_new(given.name, "-merge", "KSTREAM-MERGE-")

    operator = f"the join {merge_name}"
    key_serde = context.key_serde(given.key_serde or left.key_serde or right.key_serde, operator)
    left_serde = context.value_serde(given.value_serde or left.value_serde, operator)
    right_serde = context.value_serde(given.other_value_serde or right.value_serde, operator)
    store_type = given.store_type or context.config.dsl_store_type
    stores = _Stores(given, windows, key_serde, store_type, keeps_headers(context.config, store_type))
    base = given.store_name
    this_store = stores.window(f"{base}{this_suffix}" if base else this_generated, left_serde)
    other_store = stores.window(f"{base}{other_suffix}" if base else other_generated, right_serde)
    outer_store = None
    if left_outer:
        shared = "-outer-shared-join" if right_outer else "-left-shared-join"
        number = this_generated.rpartition("-")[2]
        outer_name = f"{base}{shared}" if base else f"KSTREAM-OUTERSHARED-{number}"
        # A left join keeps no record of the right side.
        outer_store = stores.outer(outer_name, left_serde, right_serde if right_outer else VoidSerde())
    for store in (this_store, other_store, outer_store):
        if store is not None:
            context.stores[store.name] = store
            if base is None:
                changelog = f"{store.name}-changelog" if store.logged else None
                names.note_generated(store=store.name, changelog=changelog)

    left_node = ProcessorNode(this_window, Fixed(StreamJoinWindow(this_store.name), this_store))
    context.graph.add(left_node, left._node)
    right_node = ProcessorNode(other_window, Fixed(StreamJoinWindow(other_store.name), other_store))
    context.graph.add(right_node, right._node)
    keyed = with_key_joiner(joiner, with_key)
    # With windows of `JoinWindows.of`, records without a match are not stored, because they are emitted at once.
    kept = outer_store if outer_store is not None and not windows.legacy else None
    outer_name_or_none = None if kept is None else kept.name
    outer_stores = () if kept is None else (kept,)
    common: dict[str, Any] = {
        "before_ms": windows.before_ms,
        "after_ms": windows.after_ms,
        "grace_ms": windows.grace_ms,
        "joiner": keyed,
    }
    this = StreamStreamJoin(
        is_left=True,
        other_store=other_store.name,
        outer=left_outer,
        outer_store=outer_name_or_none,
        shared=merge_name,
        **common,
    )
    other = StreamStreamJoin(
        is_left=False,
        other_store=this_store.name,
        outer=right_outer,
        outer_store=outer_name_or_none,
        shared=merge_name,
        **common,
    )
    this_step = StreamJoinStep(this, other_store, *outer_stores)
    other_step = StreamJoinStep(other, this_store, *outer_stores)
    this_step.on_error = other_step.on_error = on_error
    self_join = guarded(StreamStreamSelfJoin(window_store=this_store.name, **common), on_error, holds=True)
    node = StreamJoinNode(
        merge_name,
        this_window,
        other_window,
        (this_name, this_step),
        (other_name, other_step),
        Fixed(self_join, this_store),
    )
    node.relaxed_null_keys = left_outer
    context.graph.add(node, left._node, right._node)
    return context.faces.joined_stream(
        context,
        merge_name,
        node,
        left._sources | right._sources,
        key_serde,
        late_left=((this_name, node, this_step), left_serde),
        late_right=((other_name, node, other_step), right_serde),
    )


@dataclass(frozen=True)
class _Stores:
    given: StreamJoined
    windows: JoinWindows
    key_serde: Serde[Any]
    store_type: str
    keeps_headers: bool

    def window(self, name: str, value_serde: Serde[Any]) -> StoreSpec:
        size_ms = self.windows.size_ms
        kind_class = operator_kinds.HeadersWindow if self.keeps_headers else kinds.Window
        return StoreSpec(
            name=f"{name}-store",
            kind=kind_class(
                retention_ms=size_ms + self.windows.grace_ms, size_ms=size_ms, retain_duplicates=True
            ),
            key_serde=self.key_serde,
            value_serde=value_serde,
            persistent=self.store_type == "rocksdb",
            logged=self.given.logging,
            internal=True,
            topic_config={**self.given.topic_config, "cleanup.policy": "delete"},
        )

    def outer(self, name: str, left_serde: Serde[Any], right_serde: Serde[Any]) -> StoreSpec:
        return StoreSpec(
            name=f"{name}-store",
            kind=operator_kinds.OuterJoin(),
            key_serde=self.key_serde,
            value_serde=LeftOrRightSerde(left_serde, right_serde),
            persistent=self.store_type == "rocksdb",
            logged=self.given.logging,
            internal=True,
            topic_config=dict(self.given.topic_config),
        )
