"""A random graph of DSL operators: the steps that make it are in `stream_steps` and `table_steps`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import stream_steps, table_steps
from .chance import TOPICS, Chance, Node
from .processors import step_process

__all__ = ["Graph"]


class Graph:
    """The nodes of a case as they are added, and what can be built upon."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.nodes: list[dict[str, Any]] = []
        self.streams: list[Node] = []
        self.tables: list[Node] = []
        self.topics: set[str] = set()
        self.read_back: dict[str, str] = {}
        self.punctuated = False

    def add(self, op: str, **fields: Any) -> str:
        """Adds a node; what is None is left out."""
        node_id = fields.pop("id", None) or f"n{len(self.nodes) + 1}"
        self.nodes.append({"id": node_id, "op": op, **{k: v for k, v in fields.items() if v is not None}})
        return node_id

    def build(self) -> None:
        chance = self.chance
        self._source("in")
        for topic in ("num", "in2", "doc"):
            if chance.happens(0.4):
                self._source(topic)
        for _ in range(chance.random.randint(2, 7)):
            chance.pick(_STEPS)(self)
        self._sinks()

    # ------------------------------------------------------------------ what to go on from

    def stream(self, value: str | None = None, any_key: bool = False) -> Node:
        candidates = [s for s in self.streams if any_key or s.key == "string"]
        typed = [s for s in candidates if value in (None, s.value)] or candidates
        return self.chance.pick(typed[-4:] if self.chance.happens(0.6) else typed)

    def table(self) -> Node:
        if not self.tables or self.chance.happens(0.1):
            table_steps.step_table(self)
        return self.chance.pick(self.tables)

    def _source(self, topic: str) -> None:
        self.topics.add(topic)
        extractor: Any = None
        if topic == "doc" and self.chance.happens(0.6):
            then = self.chance.pick(["log_and_skip", "use_partition_time"])
            extractor = ["json_field", "t", then]
        elif self.chance.happens(0.06):
            extractor = self.chance.pick(["log_and_skip", "use_partition_time", "fail"])
        topics: dict[str, Any] = {"topic": topic}
        if topic == "in2" and self.chance.happens(0.3):
            topics = {"topics": ["in2", "in3"]}
            self.topics.add("in3")
        node = self.add("stream", **topics, timestamp_extractor=extractor, **self.chance.maybe_named())
        self.streams.append(Node(node, "string", TOPICS[topic]))

    def _sinks(self) -> None:
        used = {node.get(side) for node in self.nodes for side in ("input", "other")}
        number = 0
        for node in list(self.streams):
            if node.id in used and not self.chance.happens(0.1):
                continue
            number += 1
            if node.key == "string" and self.chance.happens(0.08):
                topic_fn: Any = self.chance.pick(
                    [["by_key", f"dyn{number}-"], ["by_header", "h", f"other{number}"]]
                )
                if any("topic_fn" in other for other in self.nodes):
                    topic_fn = None
                self.add("to", input=node.id, topic=None if topic_fn else f"out{number}", topic_fn=topic_fn)
            else:
                self.add("to", input=node.id, topic=f"out{number}", **self.chance.maybe_named())
        for table in self.tables:
            if table.id not in used:
                number += 1
                stream = self.add("toStream", input=table.id)
                self.add("to", input=stream, topic=f"out{number}")


_STEPS: list[Callable[[Graph], None]] = [
    *[stream_steps.step_stateless] * 3,
    *[table_steps.step_aggregate] * 4,
    *[stream_steps.step_stream_join] * 2,
    *[table_steps.step_table_operator] * 2,
    *[step_process] * 2,
    table_steps.step_cogroup,
    table_steps.step_table,
    table_steps.step_table_join,
    table_steps.step_foreign_key_join,
    stream_steps.step_stream_table_join,
    stream_steps.step_global_table,
]
