"""Random choices that make sense of a case: functions of each type, windows, stores, names, settings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

__all__ = ["TOPICS", "Chance", "Node", "StoreHandle"]

TOPICS = {
    "in": "string",
    "in2": "string",
    "in3": "string",
    "num": "long",
    "doc": "json",
    "t1": "string",
    "t2": "long",
    "t3": "string",
}
"""Input topics and the types of their values; keys are strings."""

CACHE = {"statestore.cache.max.bytes": 10485760}


class Node(NamedTuple):
    """A stream or table: its id and its types; a windowed key is ``windowed``."""

    id: str
    key: str
    value: str


class StoreHandle(NamedTuple):
    """A store that can be queried: ``kind`` is ``kv``, ``lru``, ``window``, ``session`` or ``versioned``."""

    name: str
    kind: str
    value: str


class Chance:
    """One source of randomness and what has been chosen for the whole case."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(f"wide/{seed}")
        self.keys = ["a", "b", "c", "ab"][: self.random.choice([2, 3, 4])]
        self.null_keys = self.random.choice([0, 0, 0.06])
        self.null_values = self.random.choice([0, 0.1, 0.2])
        self.lateness_ms = self.random.choice([0, 3, 10, 40])
        self.step_ms = self.random.choice([1, 2, 5])
        self.jumps = self.random.choice([0, 0.04, 0.1])
        self.named = self.random.random() < 0.3
        self.stores: list[StoreHandle] = []
        self._names = 0
        self.config = self._config()

    def _config(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        optimizations = [
            "all",
            "merge.repartition.topics",
            "reuse.ktable.source.topics",
            "single.store.self.join",
        ]
        for chance, settings in (
            (0.35, CACHE),
            (0.25, {"topology.optimization": self.pick(optimizations)}),
            (0.12, {"dsl.store.format": "HEADERS"}),
            (0.15, {"dsl.store.suppliers.class": "in_memory"}),
            (0.1, {"processing.guarantee": "exactly_once_v2"}),
            (0.2, {"processing.exception.handler": "continue"}),
            (0.2, {"deserialization.exception.handler": "continue"}),
            (0.1, {"production.exception.handler": "continue"}),
            (0.1, {"errors.dead.letter.queue.topic.name": "dlq"}),
            (0.05, {"max.task.idle.ms": 1000}),
        ):
            if self.random.random() < chance:
                chosen.update(settings)
        return chosen

    def pick(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def happens(self, chance: float) -> bool:
        return self.random.random() < chance

    def name(self, prefix: str = "N") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def maybe_named(self) -> dict[str, Any]:
        if self._names and self.happens(0.01):  # perhaps a name that is taken
            return {"name": f"N{self.random.randint(1, self._names)}"}
        return {"name": self.name()} if self.named and self.happens(0.5) else {}

    # ------------------------------------------------------------------ functions

    def predicate(self, value: str) -> Any:
        key_in = ["key_in", self.random.sample(self.keys, 1)]
        options: list[Any] = [
            "value_is_null",
            ["not", "value_is_null"],
            key_in,
            ["not", key_in],
            "always",
            "never",
        ]
        if value == "string":
            length = ["value_length_gt", self.random.randint(0, 3)]
            options += [
                length,
                ["value_contains", self.pick("abxyz")],
                ["value_eq", self.pick("abc")],
                ["fail_on", "b"],
            ]
        elif value == "long":
            options += [
                ["value_gt", self.random.randint(-3, 6)],
                ["value_mod", 2, self.pick([0, 1])],
                ["fail_on", 3],
            ]
        elif value == "json":
            options += [["json_gt", "f", 3], ["json_gt", "t", 20]]
        chosen = self.pick(options)
        if chosen[0] == "fail_on" and not self.happens(0.3):
            return "always"
        return chosen

    def mapper(self, value: str) -> tuple[Any, str]:
        """A function of values, and the type of its result."""
        by_type: dict[str, list[tuple[Any, str]]] = {
            "string": [
                ("upper", "string"),
                (["append", "!"], "string"),
                (["prepend", "<"], "string"),
                ("first_char", "string"),
                ("length", "long"),
                ("parse_long", "long"),
                (["pick", 0], "string"),
                (["null_if", "b"], "string"),
                (["wrap", "f"], "json"),
                (["const", 7], "long"),
                ("value", "string"),
                (["null", "string"], "string"),
                (["fail_on", "c"], "string"),
            ],
            "long": [
                (["add", 2], "long"),
                (["mul", -1], "long"),
                (["mod_label", 2], "string"),
                ("to_string", "string"),
                (["null_if", 3], "long"),
                ("value", "long"),
                (["fail_on", 4], "long"),
            ],
            "json": [
                ("to_string", "string"),
                (["json_field", "f"], "string"),
                (["json_long", "f"], "long"),
                ("value", "json"),
                (["wrap", "g"], "json"),
                (["const", {"f": 1}], "json"),
            ],
        }
        fn, out = self.pick(by_type[value])
        if fn[0] == "fail_on" and not self.happens(0.3):
            return "value", value
        return fn, out

    def key_function(self, value: str) -> Any:
        """A function of key and value that gives a string key."""
        options: list[Any] = ["key", ["key_append", "+"], ["const", "K"], "key_first_char"]
        if value == "string":
            options += ["value", "first_char", ["pick", 0], ["null_if", "c"]]
        elif value == "long":
            options += [["mod_label", 2], "to_string"]
        elif value == "json":
            options += [["json_field", "f"]]
        return self.pick(options)

    def foreign_key(self, value: str) -> Any:
        options: dict[str, list[Any]] = {
            "string": ["first_char", ["pick", 0], "value", ["null_if", "b"], "key"],
            "long": [["mod_label", 2], "to_string", ["const", "a"]],
            "json": [["json_field", "f"], ["const", "a"]],
        }
        return self.pick(options[value])

    def joiner(self, left: str, right: str, with_key: bool = True) -> tuple[Any, str]:
        options: list[tuple[Any, str]] = [
            ("concat", "string"),
            ("left", left),
            ("right", right),
            ("null_if_equal", "string"),
        ]
        if with_key:
            options.append(("concat_with_key", "string"))
        if left == right == "long":
            options += [("sum", "long")] * 2
        return self.pick(options)

    def aggregator(self, value: str) -> tuple[Any, Any, str, str]:
        """(aggregator, initial value, merger of sessions, type of the result)"""
        counted = ("count", 0, "sum", "long")
        joined = ("append", "", "concat", "string")
        listed: tuple[Any, Any, str, str] = ("list_add", [], "list_concat", "json")
        if value == "long":
            return self.pick(
                [
                    ("sum", 0, "sum", "long"),
                    ("max", None, "max", "long"),
                    ("min", None, "min", "long"),
                    joined,
                    counted,
                    listed,
                ]
            )
        if value == "string":
            return self.pick(
                [
                    joined,
                    listed,
                    counted,
                    ("sum_length", 0, "sum", "long"),
                    (["append_or_null", "b"], "", "concat", "string"),
                ]
            )
        return self.pick([counted, joined, listed])

    def reducer(self, value: str) -> Any:
        if value == "long":
            return self.pick(["sum", "max", "min", "last", "first", ["null_on", 3]])
        if value == "string":
            return self.pick(
                ["max", "min", "last", "first", "concat", ["concat", "-"], ["null_on", "c"], ["fail_on", "c"]]
            )
        return self.pick(["last", "first"])

    # ------------------------------------------------------------------ windows and stores

    def window(self) -> dict[str, Any]:
        grace = self.pick([None, 0, 3, 10, 40])
        kind = self.pick(["tumbling", "hopping", "sliding", "session"])
        if self.happens(0.04):
            return {"type": "unlimited", "start_ms": self.pick([0, 20])}
        window: dict[str, Any] = {"type": kind}
        if kind == "tumbling":
            window["size_ms"] = self.pick([5, 10, 17])
        elif kind == "hopping":
            window |= {"size_ms": self.pick([6, 10, 15]), "advance_ms": self.pick([2, 3, 5, 6])}
        elif kind == "sliding":
            window["diff_ms"] = self.pick([1, 4, 10])
        else:
            window["gap_ms"] = self.pick([0, 1, 4, 8])
        return window if grace is None else {**window, "grace_ms": grace}

    def join_windows(self) -> dict[str, Any]:
        if self.happens(0.7):
            window = {"diff_ms": self.pick([0, 1, 3, 8, 20])}
        else:
            window = {"before_ms": self.pick([0, 3, 10]), "after_ms": self.pick([1, 2, 9])}
        grace = self.pick([None, 0, 5, 20])
        if self.happens(0.06):
            return {**window, "legacy": True}
        return window if grace is None else {**window, "grace_ms": grace}

    def materialized(self, value: str, kind: str = "kv", chance: float = 0.65) -> dict[str, Any] | None:
        """``materialized`` of a table; a named store can be queried."""
        if not self.happens(chance):
            return None
        chosen: dict[str, Any] = {}
        if self.happens(0.8):
            taken = self.stores and self.happens(0.01)
            chosen["store"] = self.pick(self.stores).name if taken else self.name("st")
        if self.happens(0.35):
            chosen["type"] = self.pick(["in_memory", "persistent"])
        if self.happens(0.2):
            chosen["caching"] = self.pick([True, False])
        if self.happens(0.12):
            chosen["logging"] = False
        if kind == "kv" and "store" in chosen and "type" not in chosen:
            variant = self.random.random()
            if variant < 0.08:
                chosen["lru"] = self.pick([1, 2, 3])
            elif variant < 0.16:
                chosen["plain"] = True
            elif variant < 0.34:
                chosen["versioned"] = {"history_retention_ms": self.pick([10, 50, 300])}
                chosen.pop("caching", None)
        if kind in ("window", "session") and self.happens(0.3):
            chosen["retention_ms"] = self.pick([100000, 200])
        if "store" in chosen:
            shown = next((variant for variant in ("lru", "versioned") if variant in chosen), kind)
            self.stores.append(StoreHandle(chosen["store"], shown, value))
        return chosen or None
