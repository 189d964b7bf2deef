"""Builds the topology of a case: one method for each node of SPEC.md, sections 4 and 7.

Node ids map to `Node`, the DSL object with its static types. Every serde is given explicitly, as the oracle
does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamapp import (
    EmitStrategy,
    GlobalKTable,
    KGroupedTable,
    KStream,
    KTable,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    Topology,
)

from . import functions as fn
from .processors import fixed_key_supplier, processor_type, supplier
from .stores import materialized, state_store
from .types import LONG, STRING, Type, text, to_json
from .windows import buffer_config, join_windows, windows

__all__ = ["CaseBuilder", "Node"]

Spec = dict[str, Any]


@dataclass(frozen=True)
class Node:
    """A built node: the DSL object, its types, and for windowed groups the type of the windowed key."""

    dsl: Any
    key: Type
    value: Type
    windowed: Type | None = None


class CaseBuilder:
    """Applies the nodes of a case in order; `where` says how far it has come."""

    def __init__(self, case: Spec, config: StreamsConfig) -> None:
        self.case = case
        self.where = "build"
        self.low_level = case.get("api") == "processor"
        self.builder = StreamsBuilder(config)
        self.topology = Topology()
        self.nodes: dict[str, Node] = {}
        self.side_effects: dict[str, list[Any]] = {}
        self.sinks: dict[str, tuple[Type, Type]] = {}
        self.dynamic_sink: tuple[Type, Type] | None = None

    def build(self) -> Topology:
        for spec in self.case["topology"]:
            self.where = f"build {spec.get('id', spec['op'])}"
            method = re.sub("[A-Z]", lambda m: "_" + m[0].lower(), spec["op"])
            node = getattr(self, f"_{method}")(spec)
            if node is not None:
                self.nodes[spec["id"]] = node
        self.where = "topology"
        return self.topology if self.low_level else self.builder.build()

    def topic_types(self, topic: str) -> tuple[Type, Type]:
        serdes = self.case["topics"].get(topic, {})
        return Type.of(serdes.get("key")), Type.of(serdes.get("value"))

    def _input(self, spec: Spec) -> Node:
        return self.nodes[spec["input"]]

    def _sink(self, spec: Spec, key: Type, value: Type) -> tuple[Type, Type]:
        types = Type.of(spec.get("key_serde", key.spec)), Type.of(spec.get("value_serde", value.spec))
        if "topic" in spec:
            self.sinks[spec["topic"]] = types
        else:
            self.dynamic_sink = types
        return types

    # ---------------------------------------------------------------------------- sources

    def _stream(self, spec: Spec) -> Node:
        topics = spec.get("topics", []) + ([spec["topic"]] if "topic" in spec else [])
        key, value = self.topic_types(spec.get("pattern") or next(iter(topics), ""))
        source = re.compile(spec["pattern"]) if "pattern" in spec else topics
        return Node(self.builder.stream(source, **_consumed(spec, key, value)), key, value)

    def _table(self, spec: Spec) -> Node:
        key, value = self.topic_types(spec["topic"])
        store = materialized(spec, key, value)
        table = self.builder.table(spec["topic"], **_consumed(spec, key, value), materialized=store)
        return Node(table, key, value)

    def _global_table(self, spec: Spec) -> Node:
        key, value = self.topic_types(spec["topic"])
        store = materialized(spec, key, value)
        table = self.builder.global_table(spec["topic"], **_consumed(spec, key, value), materialized=store)
        return Node(table, key, value)

    def _add_global_store(self, spec: Spec) -> None:
        key, value = self.topic_types(spec["topic"])
        store, processor = state_store(spec["store"]), supplier(spec["processor"])
        self.builder.add_global_store(
            store, spec["topic"], processor, key_serde=key.serde, value_serde=value.serde
        )

    # ---------------------------------------------------------------------------- without state

    def _filter(self, spec: Spec) -> Node:
        i = self._input(spec)
        method = i.dsl.filter if spec["op"] == "filter" else i.dsl.filter_not
        options = _table_options(spec, i.key, i.value) if isinstance(i.dsl, KTable) else _named(spec)
        return Node(method(fn.predicate(spec["predicate"]), **options), i.key, i.value)

    _filter_not = _filter

    def _map_values(self, spec: Spec) -> Node:
        i = self._input(spec)
        value = fn.mapper_type(spec["fn"], i.key, i.value)
        mapper = fn.mapper(spec["fn"])
        with_key = spec.get("with_key", False)
        function = mapper if with_key else lambda v: mapper(None, v)
        options = _table_options(spec, i.key, value) if isinstance(i.dsl, KTable) else _named(spec)
        return Node(i.dsl.map_values(function, with_key=with_key, **options), i.key, value)

    def _map(self, spec: Spec) -> Node:
        i = self._input(spec)
        pair, key, value = _pair(spec, i.key, i.value)
        return Node(i.dsl.map(pair, **_named(spec)), key, value)

    def _flat_map_values(self, spec: Spec) -> Node:
        i = self._input(spec)
        flat = fn.flat(spec["fn"])
        with_key = spec.get("with_key", False)
        function = (lambda k, v: flat(v)) if with_key else flat
        flattened = i.dsl.flat_map_values(function, with_key=with_key, **_named(spec))
        return Node(flattened, i.key, fn.flat_type(spec["fn"], i.value))

    def _flat_map(self, spec: Spec) -> Node:
        i = self._input(spec)
        flat = fn.flat(spec["fn"])
        pair, key, value = _pair(spec, i.key, fn.flat_type(spec["fn"], i.value))
        flattened = i.dsl.flat_map(lambda k, v: [pair(k, x) for x in flat(v)], **_named(spec))
        return Node(flattened, key, value)

    def _select_key(self, spec: Spec) -> Node:
        i = self._input(spec)
        selected = i.dsl.select_key(fn.mapper(spec["fn"]), **_named(spec))
        return Node(selected, fn.mapper_type(spec["fn"], i.key, i.value), i.value)

    def _peek(self, spec: Spec) -> Node:
        i = self._input(spec)
        return Node(i.dsl.peek(self._effect(spec), **_named(spec)), i.key, i.value)

    def _foreach(self, spec: Spec) -> None:
        self._input(spec).dsl.foreach(self._effect(spec), **_named(spec))

    def _effect(self, spec: Spec) -> Callable[[Any, Any], None]:
        calls = self.side_effects[spec["id"]] = []
        return lambda k, v: calls.append([to_json(k), to_json(v)])

    def _split(self, spec: Spec) -> None:
        i = self._input(spec)
        branched = i.dsl.split(**_named(spec))
        names = [branch["name"] for branch in spec["branches"]]
        for branch in spec["branches"]:
            branched = branched.branch(fn.predicate(branch["predicate"]), name=branch["name"])
        if "default" in spec:
            names.append(spec["default"])
            streams = branched.default_branch(name=spec["default"])
        else:
            streams = branched.no_default_branch()
        for full_name, stream in streams.items():
            for name in names:
                if full_name == spec["name"] + name if "name" in spec else full_name.endswith(name):
                    self.nodes[f"{spec['id']}.{name}"] = Node(stream, i.key, i.value)

    def _merge(self, spec: Spec) -> Node:
        i = self._input(spec)
        return Node(i.dsl.merge(self.nodes[spec["other"]].dsl, **_named(spec)), i.key, i.value)

    def _to(self, spec: Spec) -> None:
        i = self._input(spec)
        key, value = self._sink(spec, i.key, i.value)
        topic = spec["topic"] if "topic" in spec else fn.TopicFunction(spec["topic_fn"])
        chosen = spec.get("partition")
        partitioner = None if chosen is None else lambda topic, key, value, partitions: chosen
        i.dsl.to(topic, key_serde=key.serde, value_serde=value.serde, partitioner=partitioner, **_named(spec))

    def _repartition(self, spec: Spec) -> Node:
        i = self._input(spec)
        partitions = {"partitions": spec["partitions"]} if "partitions" in spec else {}
        repartitioned = i.dsl.repartition(**_serdes(i.key, i.value), **partitions, **_named(spec))
        return Node(repartitioned, i.key, i.value)

    # ---------------------------------------------------------------------------- tables

    def _to_table(self, spec: Spec) -> Node:
        i = self._input(spec)
        store = materialized(spec, i.key, i.value)
        table = i.dsl.to_table(**_serdes(i.key, i.value), materialized=store, **_named(spec))
        return Node(table, i.key, i.value)

    def _to_stream(self, spec: Spec) -> Node:
        i = self._input(spec)
        if "fn" not in spec:
            return Node(i.dsl.to_stream(**_named(spec)), i.key, i.value)
        key = fn.mapper_type(spec["fn"], i.key, i.value)
        return Node(i.dsl.to_stream(fn.mapper(spec["fn"]), **_named(spec)), key, i.value)

    def _transform_values(self, spec: Spec) -> Node:
        i = self._input(spec)
        counts = spec.get("counts")
        value = fn.mapper_type(spec["fn"], i.key, i.value) if counts is None else STRING
        stores = () if counts is None else (counts,)
        options = _table_options(spec, i.key, value)
        transformed = i.dsl.transform_values(lambda: _Transformer(spec["fn"], counts), *stores, **options)
        return Node(transformed, i.key, value)

    def _suppress(self, spec: Spec) -> Node:
        i = self._input(spec)
        buffer = buffer_config(spec.get("buffer", {}))
        if spec["until"] == "window_closes":
            suppressed = Suppressed.until_window_closes(buffer, **_named(spec))
        else:
            suppressed = Suppressed.until_time_limit(spec["time_limit_ms"], buffer, **_named(spec))
        return Node(i.dsl.suppress(suppressed), i.key, i.value)

    # ---------------------------------------------------------------------------- grouping

    def _group_by_key(self, spec: Spec) -> Node:
        i = self._input(spec)
        return Node(i.dsl.group_by_key(**_serdes(i.key, i.value), **_named(spec)), i.key, i.value)

    def _group_by(self, spec: Spec) -> Node:
        i = self._input(spec)
        if isinstance(i.dsl, KTable):
            pair, key, value = _pair(spec, i.key, i.value)
            return Node(i.dsl.group_by(pair, **_serdes(key, value), **_named(spec)), key, value)
        key = fn.mapper_type(spec["fn"], i.key, i.value)
        grouped = i.dsl.group_by(fn.mapper(spec["fn"]), **_serdes(key, i.value), **_named(spec))
        return Node(grouped, key, i.value)

    def _windowed_by(self, spec: Spec) -> Node:
        i = self._input(spec)
        windowed = i.dsl.windowed_by(windows(spec["window"]))
        if "emit" in spec:
            on_close = spec["emit"] == "on_window_close"
            strategy = EmitStrategy.ON_WINDOW_CLOSE if on_close else EmitStrategy.ON_WINDOW_UPDATE
            windowed = windowed.emit_strategy(strategy)
        return Node(windowed, i.key, i.value, i.key.windowed_by(spec["window"]))

    def _cogroup(self, spec: Spec) -> Node:
        i = self._input(spec)
        aggregator = fn.aggregator(spec["agg"])
        if "other" in spec:
            return Node(i.dsl.cogroup(self.nodes[spec["other"]].dsl, aggregator), i.key, i.value)
        return Node(i.dsl.cogroup(aggregator), i.key, fn.aggregator_type(spec["agg"]))

    # ---------------------------------------------------------------------------- aggregations

    def _count(self, spec: Spec) -> Node:
        return self._aggregation(spec, self._input(spec).dsl.count, [], LONG)

    def _reduce(self, spec: Spec) -> Node:
        i = self._input(spec)
        reducers = [fn.reducer(spec["reducer"])]
        if isinstance(i.dsl, KGroupedTable):
            reducers.append(fn.reducer(spec["subtractor"]))
        return self._aggregation(spec, i.dsl.reduce, reducers, i.value)

    def _aggregate(self, spec: Spec) -> Node:
        i = self._input(spec)
        value = fn.aggregator_type(spec["agg"]) if "agg" in spec else i.value
        arguments: list[Callable[..., Any]] = [lambda: value.value(spec.get("init"))]
        if "agg" in spec:
            arguments.append(fn.aggregator(spec["agg"]))
        if isinstance(i.dsl, KGroupedTable):
            arguments.append(fn.aggregator(spec["subtractor"]))
        if i.windowed is not None and i.windowed.session:
            arguments.append(fn.merger(spec["merger"]))
        return self._aggregation(spec, i.dsl.aggregate, arguments, value)

    def _aggregation(self, spec: Spec, method: Callable[..., Any], arguments: list[Any], value: Type) -> Node:
        i = self._input(spec)
        table = method(*arguments, materialized=materialized(spec, i.key, value), **_named(spec))
        return Node(table, i.windowed or i.key, value)

    # ---------------------------------------------------------------------------- joins

    def _join(self, spec: Spec) -> Node:
        left, right = self._input(spec), self.nodes[spec["other"]]
        methods = {"join": "join", "leftJoin": "left_join", "outerJoin": "outer_join"}
        join = getattr(left.dsl, methods[spec["op"]])
        value = fn.joiner_type(spec["joiner"], left.value, right.value)
        if isinstance(left.dsl, KTable):
            options = self._table_join(spec, left, value)
        else:
            options = {"with_key": fn.joiner_uses_key(spec["joiner"])}
            if isinstance(right.dsl, GlobalKTable):
                options |= {"key_selector": fn.mapper(spec["key_fn"]), **_named(spec)}
            elif isinstance(right.dsl, KStream):
                options |= _stream_join(spec, left, right)
            else:
                grace = {"grace": spec["grace_ms"]} if "grace_ms" in spec else {}
                options |= {**_serdes(left.key, left.value), **grace, **_named(spec)}
        return Node(join(right.dsl, fn.joiner(spec["joiner"]), **options), left.key, value)

    _left_join = _outer_join = _join

    def _table_join(self, spec: Spec, left: Node, value: Type) -> dict[str, Any]:
        if "foreign_key" not in spec:
            return _table_options(spec, left.key, value)
        mapper = fn.mapper(spec["foreign_key"])
        with_key = spec.get("with_key", False)
        return {
            "foreign_key": mapper if with_key else lambda v: mapper(None, v),
            "foreign_key_with_key": with_key,
            "materialized": materialized(spec, left.key, value),
            **_named(spec),
        }

    # ---------------------------------------------------------------------------- processors

    def _add_state_store(self, spec: Spec) -> None:
        target = self.topology if self.low_level else self.builder
        target.add_state_store(state_store(spec["store"]), *spec.get("processors", []))

    def _process(self, spec: Spec) -> Node:
        i = self._input(spec)
        processed = i.dsl.process(supplier(spec["processor"]), *spec.get("stores", []), **_named(spec))
        return Node(processed, i.key, processor_type(spec["processor"], i.value))

    def _process_values(self, spec: Spec) -> Node:
        i = self._input(spec)
        stores = spec.get("stores", [])
        processed = i.dsl.process_values(fixed_key_supplier(spec["processor"]), *stores, **_named(spec))
        return Node(processed, i.key, processor_type(spec["processor"], i.value))

    def _add_source(self, spec: Spec) -> None:
        options = _consumed(spec, *self.topic_types(spec["topics"][0]))
        name = options.pop("name")
        self.topology.add_source(name, *spec["topics"], **options)

    def _add_processor(self, spec: Spec) -> None:
        self.topology.add_processor(spec["name"], supplier(spec["processor"]), *spec.get("parents", []))

    def _connect_processor_and_state_stores(self, spec: Spec) -> None:
        self.topology.connect_processor_and_state_stores(spec["name"], *spec["stores"])

    def _add_sink(self, spec: Spec) -> None:
        key, value = self._sink(spec, Type.of(None), Type.of(None))
        self.topology.add_sink(spec["name"], spec["topic"], *spec.get("parents", []), **_serdes(key, value))


class _Transformer:
    """A mapper as the transformer of ``transformValues``; with ``counts``, it counts its calls in a store."""

    def __init__(self, spec: Any, counts: str | None) -> None:
        self.mapper = fn.mapper(spec)
        self.counts = counts

    def init(self, context: Any) -> None:
        if self.counts is not None:
            self.calls = context.get_state_store(self.counts)

    def transform(self, key: Any, value: Any) -> Any:
        mapped = self.mapper(key, value)
        if self.counts is None:
            return mapped
        self.calls.put(key, (self.calls.get(key) or 0) + 1)
        return f"{text(mapped)}#{self.calls.get(key)}"

    def close(self) -> None:
        pass


def _named(spec: Spec) -> dict[str, Any]:
    return {"name": spec["name"]} if "name" in spec else {}


def _serdes(key: Type, value: Type) -> dict[str, Any]:
    return {"key_serde": key.serde, "value_serde": value.serde}


def _consumed(spec: Spec, key: Type, value: Type) -> dict[str, Any]:
    options = {**_serdes(key, value), **_named(spec)}
    if "timestamp_extractor" in spec:
        options["timestamp_extractor"] = fn.extractor(spec["timestamp_extractor"])
    return options


def _table_options(spec: Spec, key: Type, value: Type) -> dict[str, Any]:
    store = {"materialized": materialized(spec, key, value)} if "materialized" in spec else {}
    return {**store, **_named(spec)}


def _pair(
    spec: Spec, key: Type, value: Type
) -> tuple[Callable[[Any, Any], tuple[Any, Any] | None], Type, Type]:
    """``key_fn`` and ``value_fn`` as one function, and the types of its results."""
    key_mapper, value_mapper = fn.mapper(spec["key_fn"]), fn.mapper(spec["value_fn"])
    key_type, value_type = (fn.mapper_type(spec[f], key, value) for f in ("key_fn", "value_fn"))
    none = fn.predicate(spec.get("no_pair_if", "never"))
    return lambda k, v: None if none(k, v) else (key_mapper(k, v), value_mapper(k, v)), key_type, value_type


def _stream_join(spec: Spec, left: Node, right: Node) -> dict[str, Any]:
    joined = {**_serdes(left.key, left.value), "other_value_serde": right.value.serde, **_named(spec)}
    joined |= {option: spec[option] for option in ("store_name", "logging") if option in spec}
    if spec.get("store_type") == "in_memory":
        joined["store_type"] = "in_memory"
    return {"windows": join_windows(spec["windows"]), "stream_joined": StreamJoined(**joined)}
