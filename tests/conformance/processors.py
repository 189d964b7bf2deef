"""The named processors of a case (SPEC.md, section 5).

Each name is one behaviour, which serves ``process`` and ``processValues``: a fixed-key processor does the
same but for the key, which it may not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamapp import FixedKeyProcessor, Processor, PunctuationType, Record

from .functions import last_header, mapper, predicate
from .types import LONG, STRING, Type, text

__all__ = ["fixed_key_supplier", "processor_type", "supplier"]

Spec = dict[str, Any]
Behaviour = Callable[[Any, Record], None]


def processor_type(spec: Spec, value: Type) -> Type:
    """The static type of the values that the processor forwards."""
    match spec["name"]:
        case "count_punctuate":
            return LONG
        case "metadata" | "header_to_value" | "running_count" | "session_track":
            return STRING
        case _:
            return value


def supplier(spec: Spec) -> Callable[[], Processor]:
    return lambda: CaseProcessor(spec)


def fixed_key_supplier(spec: Spec) -> Callable[[], FixedKeyProcessor]:
    return lambda: CaseFixedKeyProcessor(spec)


class _Named:
    """What the two kinds of processor have in common: a behaviour, a store and a punctuation."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.behaviour = BEHAVIOURS[spec["name"]](spec)
        self.held: list[Record] = []

    def init(self, context: Any) -> None:
        self.context = context
        if "store" in self.spec:
            self.store: Any = context.get_state_store(self.spec["store"])
        if "interval_ms" in self.spec:
            stream_time = self.spec["punctuation"] == "stream_time"
            kind = PunctuationType.STREAM_TIME if stream_time else PunctuationType.WALL_CLOCK_TIME
            context.schedule(self.spec["interval_ms"], kind, self.punctuate)

    def process(self, record: Record) -> None:
        self.behaviour(self, record)

    def punctuate(self, timestamp: int) -> None:
        if self.spec["name"] == "tick":
            self.context.forward(Record("tick", "tick", timestamp))
            return
        if self.spec["name"] == "hold":
            self.forward_held()
            return
        for key, count in list(self.store.all()):
            self.context.forward(Record(key, count, timestamp))
            if self.spec.get("clear"):
                self.store.delete(key)

    def forward_held(self) -> None:
        held, self.held = self.held, []
        for record in held:
            self.context.forward(record)


class CaseProcessor(_Named, Processor):
    pass


class CaseFixedKeyProcessor(_Named, FixedKeyProcessor):
    pass


# Each of the functions below makes a behaviour (processor, record) -> None from the parameters of the case.


def _forward(spec: Spec) -> Behaviour:
    return lambda p, r: p.context.forward(r)


def _forward_twice(spec: Spec) -> Behaviour:
    def behaviour(p: Any, r: Record) -> None:
        p.context.forward(r)
        p.context.forward(r)

    return behaviour


def _forward_to(spec: Spec) -> Behaviour:
    holds = predicate(spec["predicate"])

    def behaviour(p: Any, r: Record) -> None:
        p.context.forward(r, spec["child"] if holds(r.key, r.value) else spec["other"])

    return behaviour


def _hold(spec: Spec) -> Behaviour:
    return lambda p, r: p.held.append(r)


def _gather(spec: Spec) -> Behaviour:
    def behaviour(p: Any, r: Record) -> None:
        p.held.append(r)
        if len(p.held) == spec["count"]:
            p.forward_held()

    return behaviour


def _map(spec: Spec) -> Behaviour:
    key, value = mapper(spec.get("key_fn", "key")), mapper(spec["value_fn"])

    def behaviour(p: Any, r: Record) -> None:
        p.context.forward(r.with_key(key(r.key, r.value)).with_value(value(r.key, r.value)))

    return behaviour


def _shift_timestamp(spec: Spec) -> Behaviour:
    return lambda p, r: p.context.forward(r.with_timestamp(r.timestamp + spec["ms"]))


def _set_header(spec: Spec) -> Behaviour:
    header = (spec["header"], spec["value"].encode())
    return lambda p, r: p.context.forward(r.with_headers((*r.headers, header)))


def _remove_header(spec: Spec) -> Behaviour:
    def behaviour(p: Any, r: Record) -> None:
        p.context.forward(r.with_headers(tuple(h for h in r.headers if h[0] != spec["header"])))

    return behaviour


def _header_to_value(spec: Spec) -> Behaviour:
    return lambda p, r: p.context.forward(r.with_value(last_header(r.headers, spec["header"])))


def _metadata(spec: Spec) -> Behaviour:
    def behaviour(p: Any, r: Record) -> None:
        m = p.context.record_metadata
        source = "null/-1/-1" if m is None else f"{m.topic}/{m.partition}/{m.offset}"
        p.context.forward(r.with_value(f"{source}@{r.timestamp}/{p.context.current_stream_time_ms()}"))

    return behaviour


def _put(spec: Spec) -> Behaviour:
    def behaviour(p: Any, r: Record) -> None:
        if r.key is None:
            return
        if p.store.timestamped:
            p.store.put(r.key, r.value, r.timestamp)
        else:
            p.store.put(r.key, r.value)

    return behaviour


def _lookup(spec: Spec) -> Behaviour:
    def behaviour(p: Any, r: Record) -> None:
        found = p.store.get(r.key)
        if p.store.timestamped and found is not None:
            found, _ = found
        p.context.forward(r.with_value(f"{text(r.value)}|{text(found)}"))

    return behaviour


def _running_count(spec: Spec) -> Behaviour:
    def behaviour(p: Any, r: Record) -> None:
        p.store.put(r.key, (p.store.get(r.key) or 0) + 1)
        p.context.forward(r.with_value(f"{text(r.value)}#{p.store.get(r.key)}"))

    return behaviour


def _count_punctuate(spec: Spec) -> Behaviour:
    def behaviour(p: Any, r: Record) -> None:
        if r.key is not None:
            p.store.put(r.key, (p.store.get(r.key) or 0) + 1)

    return behaviour


def _changed_only(spec: Spec) -> Behaviour:
    def behaviour(p: Any, r: Record) -> None:
        if r.key is not None and text(p.store.get(r.key)) != text(r.value):
            p.store.put(r.key, r.value)
            p.context.forward(r)

    return behaviour


def _dedup(spec: Spec) -> Behaviour:
    window = spec["window_ms"]

    def behaviour(p: Any, r: Record) -> None:
        if r.key is None:
            return
        for _ in p.store.fetch(r.key, max(0, r.timestamp - window), r.timestamp + window):
            return
        p.store.put(r.key, r.value, r.timestamp)
        p.context.forward(r)

    return behaviour


def _session_track(spec: Spec) -> Behaviour:
    gap = spec["gap_ms"]

    def behaviour(p: Any, r: Record) -> None:
        earliest_end, latest_start = max(0, r.timestamp - gap), r.timestamp + gap
        found = list(p.store.find_sessions(r.key, earliest_end, latest_start))
        start = min([r.timestamp, *(first for first, _, _ in found)])
        end = max([r.timestamp, *(last for _, last, _ in found)])
        aggregate = "".join(text(value) for _, _, value in found) + text(r.value)
        for first, last, _ in found:
            p.store.remove(r.key, first, last)
        p.store.put(r.key, start, end, aggregate)
        p.context.forward(r.with_value(f"{aggregate}@{start}/{end}"))

    return behaviour


def _versioned_put(spec: Spec) -> Behaviour:
    return lambda p, r: p.store.put(r.key, r.value, r.timestamp)


def _versioned_lookup(spec: Spec) -> Behaviour:
    def behaviour(p: Any, r: Record) -> None:
        found = p.store.get(r.key, r.timestamp)
        shown = "null" if found is None else f"{text(found[0])}@{found[1]}"
        p.context.forward(r.with_value(f"{text(r.value)}|{shown}"))

    return behaviour


BEHAVIOURS: dict[str, Callable[[Spec], Behaviour]] = {
    "forward": _forward,
    "forward_twice": _forward_twice,
    "forward_to": _forward_to,
    "hold": _hold,
    "gather": _gather,
    "map": _map,
    "shift_timestamp": _shift_timestamp,
    "set_header": _set_header,
    "remove_header": _remove_header,
    "header_to_value": _header_to_value,
    "metadata": _metadata,
    "put": _put,
    "lookup": _lookup,
    "running_count": _running_count,
    "count_punctuate": _count_punctuate,
    "tick": _forward,
    "changed_only": _changed_only,
    "dedup": _dedup,
    "session_track": _session_track,
    "versioned_put": _versioned_put,
    "versioned_lookup": _versioned_lookup,
}
