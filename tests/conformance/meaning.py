"""What of a case holds on a runner with real topics, and which cases have no meaning there.

`TopologyTestDriver`, whose answers the cases have, has one partition of each topic, a mocked clock, and handles each
record completely before the next one. Live, records of several topics and partitions are processed as they come.
So that the answers can be compared, each record is written once the one before has gone through the whole
topology and is committed. What can be compared then:

- On one partition: the outputs record by record, and the stores.
- On several, for cases whose answer does not depend on what other keys do (no stream time, no order among keys):
  the outputs of each key record by record, and the rows of all partitions together.
- With a record cache: the last output of each key, and the stores. Which updates a commit leaves out depends on how
  many records it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from .compare import compare
from .outcome import Outcome, execute
from .types import canonical

__all__ = [
    "Comparison",
    "differences",
    "in_order_of_time",
    "independent_of_partitions",
    "is_cached",
    "left_out",
    "left_out_of_batch",
]

Spec = dict[str, Any]

KEYWISE = frozenset(
    {
        *("stream", "table", "globalTable", "toTable", "toStream", "to", "repartition", "merge", "split"),
        *(
            "filter",
            "filterNot",
            "mapValues",
            "map",
            "flatMapValues",
            "flatMap",
            "selectKey",
            "peek",
            "foreach",
        ),
        *("groupByKey", "groupBy", "count", "reduce", "aggregate", "join", "leftJoin", "outerJoin"),
    }
)
"""Operators that treat each key on its own. Those with windows or a grace period follow the stream time of a task."""

TIMED = ("windows", "grace_ms", "timestamp_extractor", "topic_fn")


def left_out(case: Spec) -> str | None:
    """Why a case cannot be run on workers; None: it can."""
    expected = case["expected"]
    if reason := _needs_a_mocked_clock(case) or _needs_any_partition(case):
        return reason
    if "error_on_close" in expected:
        return "fails while closing, which a worker only logs"
    if "Unknown topic" in expected.get("error", ""):
        return "writes to a topic that the topology does not read, which only a test driver notices"
    times = [step["timestamp"] for step in case["input"] if "timestamp" in step]
    records = [r for field in ("topics", "internal", "changelogs") for r in _records(expected.get(field, {}))]
    times += [r["timestamp"] for r in records if r.get("timestamp") is not None]
    if any(time <= 0 for time in times):
        return "has timestamps of 0 or less, which librdkafka cannot write"
    return None


def left_out_of_batch(case: Spec) -> str | None:
    """Why a case cannot be run on Spark in batch; None: it can."""
    steps = [step for step in case["input"] if "topic" in step]
    nodes = case["topology"]
    if reason := _needs_a_mocked_clock(case) or _needs_any_partition(case):
        return reason
    if "error_on_close" in case["expected"]:
        return "fails while closing, which a batch has no part for"
    if any("pattern" in node for node in nodes):
        return "reads topics by a pattern; a batch of frames is given each topic by its name"
    if "topics" in case["expected"] and {s["topic"] for s in steps} & case["expected"]["topics"].keys():
        return "is given records of a topic that it writes itself"
    whole = _global_topics(case)
    later = [step["topic"] in whole for step in steps]
    if sorted(later, reverse=True) != later:
        return "changes a global table between other records; a batch has all of it before the first"
    return None


def in_order_of_time(case: Spec) -> Spec:
    """The case as a batch can compare it, which merges several inputs in the order of time.

    A case with several inputs whose records come in another order gets them in that order, no two at the same time,
    and the test driver's answer to it: that driver gives the answers of Kafka Streams to the cases as they are.
    """
    whole = _global_topics(case)
    records = [step for step in case["input"] if "topic" in step and step["topic"] not in whole]
    several = ("join", "leftJoin", "outerJoin", "merge", "cogroup")
    merges = len({step["topic"] for step in records}) > 1 or any(n["op"] in several for n in case["topology"])
    if not merges or all(a["timestamp"] < b["timestamp"] for a, b in pairwise(records)):
        return case
    ordered, last = [step for step in case["input"] if step.get("topic") in whole], -1
    for step in sorted(records, key=lambda step: int(step["timestamp"])):
        last = max(last + 1, step["timestamp"])
        ordered.append({**step, "timestamp": last})
    changed = {**case, "input": ordered}
    return {**changed, "expected": execute(changed).actual}


def _needs_any_partition(case: Spec) -> str | None:
    chooses = any(node.get("partition") not in (None, 0, []) for node in case["topology"])
    return "chooses a partition that only a test driver takes" if chooses else None


def _needs_a_mocked_clock(case: Spec) -> str | None:
    if any("advance_wall_clock_ms" in step for step in case["input"]):
        return "moves a mocked wall clock"
    if case.get("ignore_timestamps"):
        return "asks the wall clock for timestamps"
    if _processors(case, punctuation="wall_clock"):
        return "has wall-clock punctuators, which fire by the machine's clock"
    if int(case.get("config", {}).get("max.task.idle.ms", 0)):
        return "waits for the wall clock before it processes (max.task.idle.ms)"
    return None


def independent_of_partitions(case: Spec) -> bool:
    """Returns True if the answer is the same on several partitions, key by key.

    Dead letters name partition and offset, so their answer differs.
    """
    nodes = case["topology"]
    stores = [node.get("materialized", {}) for node in nodes]
    inputs = [step for step in case["input"] if "topic" in step]
    return (
        case.get("api") != "processor"
        and "error" not in case["expected"]
        and "errors.dead.letter.queue.topic.name" not in case.get("config", {})
        and all(node["op"] in KEYWISE for node in nodes)
        and not any(option in node for node in nodes for option in TIMED)
        and not any("versioned" in store or "lru" in store for store in stores)
        and len(inputs) == len(case["input"])
        and not any(step.get("key", step.get("key_hex")) is None for step in inputs)
    )


def is_cached(case: Spec) -> bool:
    return int(case.get("config", {}).get("statestore.cache.max.bytes", 0)) > 0


class Comparison:
    """Brings answers into the form in which they can be compared on a runner.

    ``partitions``: how many the topics have there. ``batch``: the runner is Spark, where nobody watches the records pass:
    there are no queries and no side effects, only the tables of the end, without the insides of operators.
    """

    def __init__(self, case: Spec, *, partitions: int = 1, batch: bool = False) -> None:
        self._by_key = partitions > 1
        self._final = is_cached(case)
        self._batch = batch

    def __call__(self, answer: Spec, tables: Collection[str] | None = None) -> Spec:
        """``tables``: those that the runner shows; None: all."""
        form = {field: answer[field] for field in ("error", "error_at") if field in answer}
        if not (self._batch and form):
            form["topics"] = {name: self._topic(found) for name, found in answer.get("topics", {}).items()}
        form["stores"] = {
            name: self._store(store)
            for name, store in answer.get("stores", {}).items()
            if tables is None or name in tables
        }
        if not self._batch:
            form["queries"] = answer.get("queries")
            effects = answer.get("side_effects", {})
            form["side_effects"] = {node: self._unordered(calls) for node, calls in effects.items()}
        return form

    def _topic(self, records: list[Spec]) -> Any:
        if not self._by_key and not self._final:
            return records
        by_key: dict[str, list[Spec]] = {}
        for record in records:
            by_key.setdefault(canonical(record["key"]), []).append(record)
        return {key: found[-1] if self._final else found for key, found in by_key.items()}

    def _store(self, store: Spec) -> Spec:
        if "entries" not in store:
            return store
        entries = store["entries"]
        if self._batch:  # rows of a table have no headers there
            entries = [{name: field for name, field in row.items() if name != "headers"} for row in entries]
        return {**store, "entries": self._unordered(entries)}

    def _unordered(self, items: list[Any]) -> list[Any]:
        return sorted(items, key=canonical) if self._by_key or self._batch else items


def differences(
    case: Spec, outcome: Outcome, comparison: Comparison, tables: Collection[str] | None = None
) -> list[str]:
    """The lines that say in what a runner's outcome differs from the answer; none: the case holds."""
    expected = {**case, "expected": comparison(case["expected"], tables)}
    found = compare(expected, Outcome(comparison(outcome.actual), outcome.error))
    return [*found[1], *found[2]]


def _global_topics(case: Spec) -> set[str]:
    return {node["topic"] for node in case["topology"] if node["op"] in ("globalTable", "addGlobalStore")}


def _records(topics: Mapping[str, list[Spec]]) -> Iterator[Spec]:
    for records in topics.values():
        yield from records


def _processors(case: Spec, **wanted: str) -> Iterable[Spec]:
    processors = [node["processor"] for node in case["topology"] if "processor" in node]
    return [p for p in processors if all(p.get(name) == value for name, value in wanted.items())]
