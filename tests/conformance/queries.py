"""Interactive queries of a case (SPEC.md, section 11), and how rows of stores are shown (section 10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from streamapp import Headers, TopologyTestDriver, Windowed
from streamapp.engine.failures import LETTER
from streamapp.query import (
    KeyQuery,
    MultiVersionedKeyQuery,
    RangeQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)

from .functions import literal
from .types import to_json

__all__ = ["answer", "row", "shown_headers", "shown_value", "shown_version"]

Spec = dict[str, Any]

STACKTRACE = "__streams.errors.stacktrace"


def answer(driver: TopologyTestDriver, spec: Spec) -> Spec:
    """What a query gives, as in ``expected``: {"result": ...} or {"error": ...}."""
    try:
        kind = spec["type"]
        if kind.startswith("iq2_"):
            return {"result": _interactive_query(driver, spec)}
        return {"result": _read(driver.store(spec["store"]), spec)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


# ---------------------------------------------------------------------------- how rows are shown


def shown_headers(headers: Headers) -> list[list[str | None]]:
    """Headers as text, without the stack traces of dead-letter records and what streamapp adds to Kafka Streams' headers."""
    return [
        [name, None if v is None else v.decode()]
        for name, v in headers
        if name != STACKTRACE and not name.startswith(LETTER)
    ]


def shown_value(found: Any) -> Spec:
    """A stored value; with its timestamp, and headers if there are any, if the store keeps them."""
    if not isinstance(found, tuple) or isinstance(found, Windowed):
        return {"value": to_json(found)}
    value, timestamp, *rest = found
    headers = shown_headers(*rest) if rest else []
    shown = {"value": to_json(value), "timestamp": timestamp}
    return {**shown, "headers": headers} if headers else shown


def shown_version(key: Any, version: Any) -> Spec:
    value, timestamp, valid_to = version
    shown = {"key": to_json(key), "value": to_json(value), "timestamp": timestamp}
    return shown if valid_to is None else {**shown, "valid_to": valid_to}


def row(key: Any, *stored: Any) -> Spec:
    """A row of a store; windows give value and timestamp as two, key-value stores as a pair."""
    return {"key": to_json(key), **_shown(stored)}


def _shown(stored: Sequence[Any]) -> Spec:
    return shown_value(tuple(stored) if len(stored) > 1 else stored[0])


def _rows(found: Iterable[tuple[Any, ...]]) -> list[Spec]:
    return [row(*entry) for entry in found]


def _window_rows(found: Iterable[tuple[Any, ...]]) -> list[Spec]:
    return [{"start": start, **_shown(stored)} for start, *stored in found]


def _sessions(key: Any, found: Iterable[tuple[int, int, Any]]) -> list[Spec]:
    return [row(Windowed(key, start, end), value) for start, end, value in found]


# ---------------------------------------------------------------------------- reads of a store


def _read(store: Any, spec: Spec) -> Any:
    key, low, high = (literal(spec.get(name)) for name in ("key", "from", "to"))
    match spec["type"]:
        case "get":
            return shown_value(store.get(key))
        case "range" | "reverse_range" as kind:
            return _rows(store.range(low, high, reverse=kind == "reverse_range"))
        case "all" | "reverse_all" as kind:
            return _rows(store.all(reverse=kind == "reverse_all"))
        case "prefix_scan":
            return _rows(store.prefix_scan(spec["prefix"].encode()))
        case "window_fetch" | "window_backward_fetch" as kind:
            return _window_rows(store.fetch(key, low, high, reverse=kind == "window_backward_fetch"))
        case "window_get":
            return shown_value(store.get(key, spec["time"]))
        case "window_fetch_all" | "window_backward_fetch_all" as kind:
            return _rows(store.fetch_all(low, high, reverse=kind == "window_backward_fetch_all"))
        case "window_fetch_range":
            return _rows(store.fetch_range(literal(spec["key_from"]), literal(spec["key_to"]), low, high))
        case "session_fetch" | "session_backward_fetch" as kind:
            return _sessions(key, store.fetch(key, reverse=kind == "session_backward_fetch"))
        case "session_find":
            return _sessions(key, store.find_sessions(key, low, high))
        case "session_get":
            return shown_value(store.get(key, low, high))
        case "versioned_get":
            found = store.get(key, spec["as_of"]) if "as_of" in spec else store.get(key)
            # Kafka Streams' get() does not say until when the version was valid; ours does.
            return None if found is None else shown_version(key, (*found[:2], None))
    raise ValueError(f"unknown query {spec['type']}")


# ---------------------------------------------------------------------------- IQv2


def _interactive_query(driver: TopologyTestDriver, spec: Spec) -> Any:
    key, low, high = (literal(spec.get(name)) for name in ("key", "from", "to"))
    descending = spec.get("descending", False)

    def ask(query: Any, show: Any) -> Any:
        result = driver.query(spec["store"], query)
        if result.failure is not None:
            return {"failure": result.failure}
        return None if result.value is None else show(result.value)

    match spec["type"]:
        case "iq2_key":
            return ask(KeyQuery(key), shown_value)
        case "iq2_timestamped_key":
            return ask(TimestampedKeyQuery(key), shown_value)
        case "iq2_range":
            return ask(RangeQuery(low, high, descending=descending), _rows)
        case "iq2_timestamped_range":
            return ask(TimestampedRangeQuery(low, high, descending=descending), _rows)
        case "iq2_window_key":
            return ask(WindowKeyQuery(key, low, high), _window_rows)
        case "iq2_window_range":
            return ask(WindowRangeQuery(low, high) if key is None else WindowRangeQuery(key=key), _rows)
        case "iq2_versioned_key":
            as_of = VersionedKeyQuery(key, as_of=spec.get("as_of"))
            return ask(as_of, lambda version: shown_version(key, version))
        case "iq2_multi_versioned_key":
            history = MultiVersionedKeyQuery(key, low, high, ascending=not descending)
            return ask(history, lambda versions: [shown_version(key, version) for version in versions])
    raise ValueError(f"unknown query {spec['type']}")
