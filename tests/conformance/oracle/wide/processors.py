"""Processors in a graph of the DSL, and whole topologies of the Processor API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .chance import Chance, Node, StoreHandle

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["LowLevel", "step_process"]

_STATELESS = (
    "forward",
    "forward_twice",
    "map",
    "shift_timestamp",
    "set_header",
    "remove_header",
    "header_to_value",
    "metadata",
)
_STATEFUL = (
    "lookup",
    "running_count",
    "changed_only",
    "count_punctuate",
    "tick",
    "dedup",
    "session_track",
    "versioned",
)
_FIXED_KEY = (
    "forward",
    "forward_twice",
    "map",
    "shift_timestamp",
    "set_header",
    "header_to_value",
    "metadata",
    "running_count",
)
"""What the oracle has for ``processValues``."""

_TEXT = ("lookup", "changed_only", "dedup", "session_track", "versioned", "tick")
"""What takes text values only."""


def stateless(chance: Chance, name: str, value: str) -> tuple[dict[str, Any], str]:
    """A processor without a store and the type of what it forwards."""
    processor: dict[str, Any] = {"name": name}
    if name == "map":
        kept = [(fn, out) for fn, out in (chance.mapper(value) for _ in range(8)) if out == value]
        processor |= {"value_fn": kept[0][0] if kept else "value", "key_fn": chance.key_function(value)}
    elif name == "shift_timestamp":
        processor["ms"] = chance.pick([5, 30])
    elif name == "set_header":
        processor |= {"header": "h", "value": chance.pick(["p", "q"])}
    elif name in ("remove_header", "header_to_value"):
        processor["header"] = "h"
    if name in ("header_to_value", "metadata"):
        value = "string"
    return processor, value


def stateful(chance: Chance, name: str, value: str, store: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """A processor, its store, and the type of what it forwards."""
    processor: dict[str, Any] = {"name": name, "store": store}
    spec: dict[str, Any] = {"name": store, "kind": "kv", "key": "string", "value": "string"}
    if name in ("running_count", "count_punctuate"):
        spec["value"] = "long"
        value = "string" if name == "running_count" else "long"
    if name in ("count_punctuate", "tick"):
        punctuation = chance.pick(["stream_time", "wall_clock"])
        processor |= {"interval_ms": chance.pick([5, 20]), "punctuation": punctuation}
    if name == "count_punctuate":
        processor["clear"] = chance.happens(0.5)
    elif name == "dedup":
        near = processor["window_ms"] = chance.pick([3, 10])
        retention = chance.pick([2 * near, 500])
        spec |= {"kind": "window", "retention_ms": retention, "window_size_ms": 2 * near}
    elif name == "session_track":
        processor["gap_ms"] = chance.pick([2, 6])
        spec |= {"kind": "session", "retention_ms": chance.pick([30, 500])}
    elif name == "versioned":
        spec |= {"kind": "versioned", "retention_ms": chance.pick([10, 100])}
        processor["name"] = "versioned_lookup"
    elif name == "lookup":
        spec["kind"] = chance.pick(["kv", "timestamped_kv"])
    if spec["kind"] != "versioned":
        for chances, option in (
            (0.3, {"type": "in_memory"}),
            (0.3, {"caching": True}),
            (0.2, {"logging": False}),
        ):
            if chance.happens(chances):
                spec |= option
    if name in ("lookup", "changed_only", "running_count") and chance.happens(0.15):
        spec = {"name": store, "kind": "lru", "max_entries": 2, "key": "string", "value": spec["value"]}
    if name == "tick":
        del processor["store"]
    kind = {"timestamped_kv": "kv"}.get(spec["kind"], spec["kind"])
    chance.stores.append(StoreHandle(store, kind, spec["value"])) if name != "tick" else None
    return processor, spec, value


def step_process(graph: Graph) -> None:
    """``process`` or ``processValues`` upon a stream."""
    chance = graph.chance
    node = graph.stream()
    name = chance.pick(_STATELESS + _STATEFUL)
    if name in _TEXT and node.value != "string":
        name = "forward"
    named = chance.maybe_named()
    if name in _STATELESS:
        processor, value = stateless(chance, name, node.value)
        op = "processValues" if name in _FIXED_KEY and chance.happens(0.5) else "process"
        if op == "processValues":
            processor.pop("key_fn", None)
        made = graph.add(op, input=node.id, processor=processor, **named)
        graph.streams.append(Node(made, "string", value))
        return
    store = chance.name("ps")
    processor, spec, value = stateful(chance, name, node.value, store)
    if name == "tick":
        made = graph.add("process", input=node.id, processor=processor, **named)
    else:
        graph.add("addStateStore", store=spec)
        if name in ("lookup", "versioned"):
            put = {"name": "put" if name == "lookup" else "versioned_put", "store": store}
            graph.add("process", input=node.id, processor=put, stores=[store])
        op = "processValues" if name == "running_count" and chance.happens(0.4) else "process"
        made = graph.add(op, input=node.id, processor=processor, stores=[store], **named)
    graph.punctuated |= name in ("tick", "count_punctuate")
    graph.streams.append(Node(made, "string", value))


class LowLevel:
    """A random topology of the Processor API: sources, a few layers of processors, sinks."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.nodes: list[dict[str, Any]] = []
        self.topics: set[str] = set()
        self.read_back: dict[str, str] = {}
        self.punctuated = False

    def add(self, op: str, **fields: Any) -> None:
        self.nodes.append({"id": f"n{len(self.nodes) + 1}", "op": op, **fields})

    def build(self) -> None:
        chance = self.chance
        layers: list[tuple[str, str]] = []
        for name, topics in (("S1", ["in"]), ("S2", ["in2", "t1"]), ("S3", ["num"])):
            if name == "S1" or chance.happens(0.5):
                extra = (
                    {"timestamp_extractor": chance.pick(["use_partition_time", "log_and_skip"])}
                    if chance.happens(0.2)
                    else {}
                )
                self.add("addSource", name=name, topics=topics, **extra)
                self.topics.update(topics)
                layers.append((name, "long" if name == "S3" else "string"))
        for number in range(chance.random.randint(1, 4)):
            self._processor(f"P{number}", layers)
        for number, (name, value) in enumerate(layers):
            if name.startswith("P") or chance.happens(0.2):
                self.add(
                    "addSink", name=f"K{number}", topic=f"out{number}", parents=[name], value_serde=value
                )

    def _processor(self, name: str, layers: list[tuple[str, str]]) -> None:
        chance = self.chance
        parent, value = chance.pick(layers)
        parents = [parent]
        same = [other for other, other_value in layers if other != parent and other_value == value]
        if same and chance.happens(0.3):
            parents.append(chance.pick(same))
        kind = chance.pick(_STATELESS + _STATEFUL)
        if kind in _TEXT and value != "string":
            kind = "forward"
        if kind in _STATELESS:
            processor, value = stateless(chance, kind, value)
            self.add("addProcessor", name=name, processor=processor, parents=parents)
            layers.append((name, value))
            return
        store = chance.name("ps")
        processor, spec, value = stateful(chance, kind, value, store)
        self.punctuated |= kind in ("tick", "count_punctuate")
        self.add("addProcessor", name=name, processor=processor, parents=parents)
        users = [name]
        if kind in ("lookup", "versioned"):
            put = {"name": "put" if kind == "lookup" else "versioned_put", "store": store}
            self.add("addProcessor", name=f"{name}put", processor=put, parents=parents)
            users.append(f"{name}put")
        if kind != "tick":
            if chance.happens(0.5):
                self.add("addStateStore", store=spec, processors=users)
            else:
                self.add("addStateStore", store=spec)
                for user in users:
                    self.add("connectProcessorAndStateStores", name=user, stores=[store])
        layers.append((name, value))
