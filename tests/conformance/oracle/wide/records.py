"""Input records, clock steps and queries of a random case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .chance import Chance, StoreHandle

__all__ = ["queries", "steps"]

_TEXTS = ["a", "b", "c", "x,1", "y,2", "ab", "7", "", "a b"]
_HEADERS = [[["h", "1"]], [["h", "1"], ["h", "2"]], [["x", None]], [["h", "3"], ["y", "z"]]]


def steps(chance: Chance, topics: dict[str, str], punctuated: bool) -> list[dict[str, Any]]:
    """Records of the topics (name: type of values), and the clock's steps if somebody looks at it."""
    random = chance.random
    with_headers = chance.happens(0.5)
    made: list[dict[str, Any]] = []
    time = random.randint(0, 30)
    for _ in range(random.choice([15, 30, 45])):
        time += random.randint(0, chance.step_ms)
        if chance.happens(chance.jumps):
            time += random.randint(20, 150)
        late = random.randint(0, chance.lateness_ms) if chance.happens(0.4) else 0
        topic = chance.pick(sorted(topics))
        record: dict[str, Any] = {
            "topic": topic,
            "key": None if chance.happens(chance.null_keys) else chance.pick(chance.keys),
            "value": None if chance.happens(chance.null_values) else _value(chance, topics[topic], time),
            "timestamp": max(0, time - late),
        }
        if with_headers and chance.happens(0.25):
            record["headers"] = chance.pick(_HEADERS)
        if topics[topic] != "string" and chance.happens(_broken(chance)):
            del record["value"]
            record["value_hex"] = "0102"
        made.append(record)
        if punctuated and chance.happens(0.1):
            made.append({"advance_wall_clock_ms": chance.pick([1, 7, 30])})
    return made


def _broken(chance: Chance) -> float:
    return 0.04 if "deserialization.exception.handler" in chance.config else 0.001


def _value(chance: Chance, kind: str, time: int) -> Any:
    if kind == "long":
        return chance.random.randint(-2, 9)
    if kind == "json":
        document: dict[str, Any] = {"f": chance.pick(["a", "b", 3, 7, None])}
        if chance.happens(0.9):
            document["t"] = time
        return document
    return chance.pick(_TEXTS)


def queries(chance: Chance, stores: Iterable[StoreHandle]) -> list[dict[str, Any]]:
    """Some reads and interactive queries of each store."""
    made = []
    for store in stores:
        options = _OPTIONS[store.kind](chance)
        chosen = chance.random.sample(options, min(len(options), 4))
        made += [{"query": {"store": store.name, **query}} for query in chosen]
    return made


def _key_value(chance: Chance) -> list[dict[str, Any]]:
    key = chance.pick(chance.keys)
    return [
        {"type": "get", "key": key},
        {"type": "all"},
        {"type": "reverse_all"},
        {"type": "range", "from": "a", "to": "b"},
        {"type": "reverse_range", "to": "b"},
        {"type": "prefix_scan", "prefix": "a"},
        {"type": "iq2_key", "key": key},
        {"type": "iq2_range", "descending": True},
        {"type": "iq2_timestamped_key", "key": key},
        {"type": "iq2_timestamped_range", "from": "ab"},
    ]


def _between(chance: Chance) -> dict[str, int]:
    low, high = sorted([chance.random.randint(0, 60), chance.random.randint(20, 200)])
    return {"from": low, "to": high}


def _window(chance: Chance) -> list[dict[str, Any]]:
    key, between = chance.pick(chance.keys), _between(chance)
    return [
        {"type": "window_fetch", "key": key, **between},
        {"type": "window_backward_fetch", "key": key, **between},
        {"type": "window_get", "key": key, "time": chance.pick([0, 10, 20, 30])},
        {"type": "window_fetch_all", **between},
        {"type": "window_backward_fetch_all", **between},
        {"type": "window_fetch_range", "key_from": "a", "key_to": "b", **between},
        {"type": "iq2_window_key", "key": key, **between},
        {"type": "iq2_window_range", **between},
    ]


def _session(chance: Chance) -> list[dict[str, Any]]:
    key, between = chance.pick(chance.keys), _between(chance)
    return [
        {"type": "session_fetch", "key": key},
        {"type": "session_backward_fetch", "key": key},
        {"type": "session_find", "key": key, **between},
        {"type": "session_get", "key": key, **between},
        {"type": "iq2_window_range", "key": key},
    ]


def _versioned(chance: Chance) -> list[dict[str, Any]]:
    key, between = chance.pick(chance.keys), _between(chance)
    return [
        {"type": "versioned_get", "key": key},
        {"type": "versioned_get", "key": key, "as_of": between["from"]},
        {"type": "iq2_versioned_key", "key": key},
        {"type": "iq2_versioned_key", "key": key, "as_of": between["to"]},
        {"type": "iq2_multi_versioned_key", "key": key, **between},
        {"type": "iq2_multi_versioned_key", "key": key, "descending": True},
        {"type": "iq2_range"},
    ]


_OPTIONS = {
    "kv": _key_value,
    "lru": _key_value,
    "window": _window,
    "session": _session,
    "versioned": _versioned,
}
