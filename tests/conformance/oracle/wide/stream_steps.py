"""Steps upon streams; each adds one operator, or a few that belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .chance import Node, StoreHandle

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["step_global_table", "step_stateless", "step_stream_join", "step_stream_table_join"]


def step_stateless(graph: Graph) -> None:
    chance = graph.chance
    node = graph.stream(any_key=True)
    by_any_key = ["mapValues", "mapValues_key", "peek", "flatMapValues", "merge", "foreach"]
    by_string_key = [
        "filter",
        "filterNot",
        "map",
        "flatMap",
        "selectKey",
        "split",
        "repartition",
        "read_back",
    ]
    op = chance.pick(by_any_key + (by_string_key if node.key == "string" else []))
    named = chance.maybe_named()
    key, value = node.key, node.value
    if op in ("filter", "filterNot"):
        made = graph.add(op, input=node.id, predicate=chance.predicate(value), **named)
    elif op == "mapValues":
        fn, value = chance.mapper(value)
        made = graph.add(op, input=node.id, fn=fn, **named)
    elif op == "mapValues_key":
        made, value = (
            graph.add("mapValues", input=node.id, fn="key_value", with_key=True, **named),
            "string",
        )
    elif op == "peek":
        made = graph.add(op, input=node.id, **named)
    elif op == "foreach":
        graph.add(op, input=node.id, **named)
        return
    elif op == "flatMapValues":
        fn = chance.pick(["chars", "split_words", ["repeat", 2]]) if value == "string" else ["repeat", 2]
        made = graph.add(op, input=node.id, fn=fn, with_key=chance.pick([None, True]), **named)
    elif op == "merge":
        others = [s for s in graph.streams if s[1:] == node[1:] == ("string", node.value) and s.id != node.id]
        if not others:
            return
        made = graph.add(op, input=node.id, other=chance.pick(others).id, **named)
    elif op == "map":
        fn, value_out = chance.mapper(value)
        made = graph.add(op, input=node.id, key_fn=chance.key_function(value), value_fn=fn, **named)
        value = value_out
    elif op == "flatMap":
        flat = chance.pick(["split_words", ["repeat", 2]]) if value == "string" else ["repeat", 2]
        key_fn = chance.key_function(value)
        made = graph.add(op, input=node.id, fn=flat, key_fn=key_fn, value_fn="value", **named)
    elif op == "selectKey":
        made = graph.add(op, input=node.id, fn=chance.key_function(value), **named)
    elif op == "split":
        _split(graph, node)
        return
    elif op == "repartition":
        made = graph.add(op, input=node.id, name=chance.name("rep") if chance.happens(0.7) else None)
    else:
        topic = chance.name("own")
        graph.add("to", input=node.id, topic=topic)
        graph.read_back[topic] = value
        made = graph.add("stream", topic=topic)
    graph.streams.append(Node(made, key, value))


def _split(graph: Graph, node: Node) -> None:
    chance = graph.chance
    prefix = f"sp{len(graph.nodes)}"
    branches = [
        {"name": "l", "predicate": chance.predicate(node.value)},
        {"name": "s", "predicate": ["key_in", chance.keys[:1]]},
    ]
    default = chance.pick(["d", None])
    graph.add("split", id=prefix, input=node.id, name=f"{prefix}-", branches=branches, default=default)
    names = ["l", "s", "d"] if default else ["l", "s"]
    for name in chance.random.sample(names, chance.random.randint(1, len(names))):
        graph.streams.append(Node(f"{prefix}.{name}", node.key, node.value))


def step_stream_join(graph: Graph) -> None:
    chance = graph.chance
    left, right = graph.stream(), graph.stream()
    joiner, value = chance.joiner(left.value, right.value)
    options: dict[str, Any] = {"windows": chance.join_windows(), **chance.maybe_named()}
    if chance.happens(0.25):
        options["store_name"] = chance.name("js")
    if chance.happens(0.2):
        options["store_type"] = "in_memory"
    if chance.happens(0.15):
        options["logging"] = False
    op = chance.pick(["join", "leftJoin", "outerJoin"])
    made = graph.add(op, input=left.id, other=right.id, joiner=joiner, **options)
    graph.streams.append(Node(made, "string", value))


def step_stream_table_join(graph: Graph) -> None:
    chance = graph.chance
    table = graph.table()
    stream = graph.stream()
    joiner, value = chance.joiner(stream.value, table.value)
    grace = chance.pick([0, 5, 20]) if _versioned(graph, table) and chance.happens(0.5) else None
    op = chance.pick(["join", "leftJoin"])
    made = graph.add(
        op, input=stream.id, other=table.id, joiner=joiner, grace_ms=grace, **chance.maybe_named()
    )
    graph.streams.append(Node(made, "string", value))


def _versioned(graph: Graph, table: Node) -> bool:
    node = next(node for node in graph.nodes if node["id"] == table.id)
    return "versioned" in node.get("materialized", {})


def step_global_table(graph: Graph) -> None:
    chance = graph.chance
    if "g" in graph.topics:
        return
    graph.topics.add("g")
    if chance.happens(0.3):
        _global_store(graph)
        return
    store = {"store": chance.name("gs")}
    if chance.happens(0.4):
        store["type"] = chance.pick(["in_memory", "persistent"])
    graph.chance.stores.append(StoreHandle(store["store"], "kv", "string"))
    table = graph.add("globalTable", topic="g", materialized=store, **chance.maybe_named())
    stream = graph.stream()
    joiner, value = chance.joiner(stream.value, "string")
    op, key_fn = chance.pick(["join", "leftJoin"]), chance.key_function(stream.value)
    named = chance.maybe_named()
    made = graph.add(op, input=stream.id, other=table, key_fn=key_fn, joiner=joiner, **named)
    graph.streams.append(Node(made, "string", value))


def _global_store(graph: Graph) -> None:
    """A store that a processor fills in every process, and one that reads it."""
    chance = graph.chance
    store = chance.name("gs")
    kind = chance.pick(["kv", "timestamped_kv"])
    spec = {"name": store, "kind": kind, "key": "string", "value": "string", "logging": False}
    if chance.happens(0.3):
        spec["type"] = "in_memory"
    chance.stores.append(StoreHandle(store, "kv", "string"))
    graph.add("addGlobalStore", topic="g", store=spec, processor={"name": "put", "store": store})
    stream = graph.stream("string")
    if stream.value == "string":
        made = graph.add("process", input=stream.id, processor={"name": "lookup", "store": store})
        graph.streams.append(Node(made, "string", "string"))
