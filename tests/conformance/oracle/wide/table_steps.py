"""Steps that make tables, and steps upon them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .chance import TOPICS, Node

if TYPE_CHECKING:
    from .graph import Graph

__all__ = [
    "step_aggregate",
    "step_cogroup",
    "step_foreign_key_join",
    "step_table",
    "step_table_join",
    "step_table_operator",
]


def step_aggregate(graph: Graph) -> None:
    chance = graph.chance
    node = graph.stream(any_key=True)
    if node.key == "windowed" and chance.happens(0.6):
        fn = chance.pick(["window_key", "window_string"])
        node = Node(graph.add("selectKey", input=node.id, fn=fn), "string", node.value)
    if node.key == "windowed" or chance.happens(0.5):
        group = graph.add("groupByKey", input=node.id, **chance.maybe_named())
    else:
        fn = chance.key_function(node.value)
        group = graph.add("groupBy", input=node.id, fn=fn, **chance.maybe_named())
    window = chance.window() if chance.happens(0.6) else None
    emit = None
    if window is not None:
        if window["type"] != "unlimited":
            emit = chance.pick([None, None, "on_window_close", "on_window_update"])
        group = graph.add("windowedBy", input=group, window=window, emit=emit)
    made, value = _aggregated(graph, group, node.value, window)
    _go_on(graph, made, node.key, value, window, emit)


def step_cogroup(graph: Graph) -> None:
    chance = graph.chance
    first = graph.stream()
    second = graph.stream(first.value)
    if second.value != first.value:
        second = first
    fn, initial, merger, value = chance.aggregator(first.value)

    def grouped(node: Node) -> str:
        if chance.happens(0.6):
            return graph.add("groupByKey", input=node.id, **chance.maybe_named())
        fn = chance.key_function(node.value)
        return graph.add("groupBy", input=node.id, fn=fn, **chance.maybe_named())

    group = graph.add("cogroup", input=grouped(first), agg=fn)
    group = graph.add("cogroup", input=group, other=grouped(second), agg=fn)
    window = chance.window() if chance.happens(0.6) else None
    if window is not None:
        group = graph.add("windowedBy", input=group, window=window)
    made = _aggregate(graph, group, None, initial, merger, value, window)
    _go_on(graph, made, "string", value, window, None)


def _aggregated(graph: Graph, group: str, value: str, window: dict[str, Any] | None) -> tuple[str, str]:
    chance = graph.chance
    op = chance.pick(["count", "reduce", "aggregate"])
    if op == "aggregate":
        fn, initial, merger, out = chance.aggregator(value)
        return _aggregate(graph, group, fn, initial, merger, out, window), out
    out = "long" if op == "count" else value
    reducer = chance.reducer(value) if op == "reduce" else None
    store = chance.materialized(out, _store_kind(window))
    return graph.add(op, input=group, reducer=reducer, materialized=store, **chance.maybe_named()), out


def _aggregate(
    graph: Graph, group: str, fn: Any, initial: Any, merger: str, value: str, window: dict[str, Any] | None
) -> str:
    chance, kind = graph.chance, _store_kind(window)
    made = graph.add(
        "aggregate",
        input=group,
        agg=fn,
        merger=merger if kind == "session" else None,
        materialized=chance.materialized(value, kind),
        **chance.maybe_named(),
    )
    graph.nodes[-1]["init"] = initial  # may be None
    return made


def _go_on(
    graph: Graph, table: str, key: str, value: str, window: dict[str, Any] | None, emit: str | None
) -> None:
    """What becomes of an aggregation's table."""
    chance = graph.chance
    if window is None:
        if key == "string":
            graph.tables.append(Node(table, key, value))
        graph.streams.append(Node(graph.add("toStream", input=table, **chance.maybe_named()), key, value))
        return
    choice = chance.random.random()
    if window["type"] != "unlimited" and emit != "on_window_close" and choice < 0.35:
        buffer: Any = chance.pick([None, {"logging": False}, {"max_records": 30, "when_full": "shutdown"}])
        table = graph.add(
            "suppress", input=table, until="window_closes", buffer=buffer, **chance.maybe_named()
        )
    elif choice < 0.5:
        table = _suppressed_for_a_time(graph, table)
    elif choice < 0.65:
        fn, value = chance.mapper(value)
        table = graph.add("mapValues", input=table, fn=fn, **chance.maybe_named())
    # The inner key of a window of windows is a windowed key again.
    to_key = chance.pick(["window_key", "window_string"]) if key == "string" else "window_string"
    choice = chance.random.random()
    if choice < 0.5:
        made = graph.add("toStream", input=table, **chance.maybe_named())
        if key == "string":
            graph.streams.append(Node(made, "windowed", value))
        else:
            graph.add("to", input=made, topic=chance.name("nested"))
    elif choice < 0.75:
        graph.streams.append(Node(graph.add("toStream", input=table, fn=to_key), "string", value))
    else:
        group = graph.add("groupBy", input=table, key_fn=to_key, value_fn="value", **chance.maybe_named())
        _aggregated_table(graph, group, value)


def _suppressed_for_a_time(graph: Graph, table: str) -> str:
    chance = graph.chance
    buffer: Any = chance.pick(
        [None, {"max_records": 2}, {"max_bytes": 200}, {"max_records": 3, "logging": False}]
    )
    if chance.happens(0.05):
        buffer = {"max_records": 4, "when_full": "shutdown"}
    limit = chance.pick([0, 5, 20])
    return graph.add(
        "suppress",
        input=table,
        until="time_limit",
        time_limit_ms=limit,
        buffer=buffer,
        **chance.maybe_named(),
    )


def step_table(graph: Graph) -> None:
    chance = graph.chance
    free = [topic for topic in ("t1", "t2", "t3") if topic not in graph.topics]
    if not free or chance.happens(0.35):
        stream = graph.stream()
        store = chance.materialized(stream.value)
        made = graph.add("toTable", input=stream.id, materialized=store, **chance.maybe_named())
        graph.tables.append(Node(made, "string", stream.value))
        return
    topic = chance.pick(free)
    graph.topics.add(topic)
    store = chance.materialized(TOPICS[topic])
    made = graph.add("table", topic=topic, materialized=store, **chance.maybe_named())
    graph.tables.append(Node(made, "string", TOPICS[topic]))


def step_table_operator(graph: Graph) -> None:
    chance = graph.chance
    table = graph.table()
    op = chance.pick(
        ["filter", "filterNot", "mapValues", "transformValues", "suppress", "groupBy", "toStream"]
    )
    named, value = chance.maybe_named(), table.value
    if op in ("filter", "filterNot"):
        store = chance.materialized(value, chance=0.4)
        made = graph.add(op, input=table.id, predicate=chance.predicate(value), materialized=store, **named)
    elif op in ("mapValues", "transformValues"):
        fn, value = chance.mapper(value)
        store = chance.materialized(value, chance=0.4)
        made = graph.add(op, input=table.id, fn=fn, materialized=store, **named)
    elif op == "suppress":
        made = _suppressed_for_a_time(graph, table.id)
    elif op == "groupBy":
        group = graph.add(op, input=table.id, key_fn=chance.key_function(value), value_fn="value", **named)
        _aggregated_table(graph, group, value)
        return
    else:
        fn = chance.key_function(value) if chance.happens(0.5) else None
        graph.streams.append(Node(graph.add(op, input=table.id, fn=fn, **named), "string", value))
        return
    graph.tables.append(Node(made, "string", value))


def _aggregated_table(graph: Graph, group: str, value: str) -> None:
    chance = graph.chance
    op = chance.pick(["count", "reduce", "aggregate"])
    named = chance.maybe_named()
    if op == "count":
        store, out = chance.materialized("long"), "long"
        made = graph.add(op, input=group, materialized=store, **named)
    elif op == "reduce" and value in ("long", "string"):
        add, subtract = ("sum", "subtract") if value == "long" else ("concat", "remove")
        store, out = chance.materialized(value), value
        made = graph.add(op, input=group, reducer=add, subtractor=subtract, materialized=store, **named)
    else:
        store, out = chance.materialized("json"), "json"
        made = graph.add(
            "aggregate",
            input=group,
            agg="list_add",
            subtractor="list_remove",
            materialized=store,
            init=[],
            **named,
        )
    graph.tables.append(Node(made, "string", out))


def step_table_join(graph: Graph) -> None:
    chance = graph.chance
    left, right = graph.table(), graph.table()
    joiner, value = chance.joiner(left.value, right.value, with_key=False)
    store = chance.materialized(value, chance=0.6)
    op, named = chance.pick(["join", "leftJoin", "outerJoin"]), chance.maybe_named()
    made = graph.add(op, input=left.id, other=right.id, joiner=joiner, materialized=store, **named)
    graph.tables.append(Node(made, "string", value))


def step_foreign_key_join(graph: Graph) -> None:
    chance = graph.chance
    left, right = graph.table(), graph.table()
    joiner, value = chance.joiner(left.value, right.value, with_key=False)
    foreign_key = chance.foreign_key(left.value)
    made = graph.add(
        chance.pick(["join", "leftJoin"]),
        input=left.id,
        other=right.id,
        foreign_key=foreign_key,
        with_key=True if foreign_key == "key" or chance.happens(0.3) else None,
        joiner=joiner,
        materialized=chance.materialized(value, chance=0.6),
        **chance.maybe_named(),
    )
    graph.tables.append(Node(made, "string", value))


def _store_kind(window: dict[str, Any] | None) -> str:
    if window is None:
        return "kv"
    return "session" if window["type"] == "session" else "window"
