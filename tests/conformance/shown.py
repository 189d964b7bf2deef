"""Records and stores in the shape of ``expected`` (SPEC.md, section 10), whichever runner they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from streamapp import Headers, StreamsConfig
from streamapp.errors import InvalidStoreError, StreamsError
from streamapp.records import OutputRecord

from .builder import CaseBuilder
from .queries import row, shown_headers, shown_value, shown_version
from .types import Type, text, to_json

__all__ = ["Shown"]

Spec = dict[str, Any]

BYTES = Type("bytes")


class Shown:
    """How one case shows what a runner made of it. Versioned stores show the keys that went in."""

    def __init__(self, case: Spec, builder: CaseBuilder, config: StreamsConfig) -> None:
        self._timed = not case.get("ignore_timestamps", False)
        self._builder = builder
        self._config = config
        self.keys: dict[Any, None] = {}

    def input(self, step: Spec) -> tuple[bytes | None, bytes | None, Headers]:
        """Key, value and headers of a record that goes in, as bytes."""
        key_type, value_type = self._builder.topic_types(step["topic"])
        if step.get("key") is not None:
            self.keys[key_type.value(step["key"])] = None
        key, value = key_type.encode(step.get("key")), value_type.encode(step.get("value"))
        if "key_hex" in step:
            key = bytes.fromhex(step["key_hex"])
        if "value_hex" in step:
            value = bytes.fromhex(step["value_hex"])
        headers = tuple((name, None if v is None else v.encode()) for name, v in step.get("headers", []))
        return key, value, headers

    def topics(self, written: Mapping[str, Sequence[OutputRecord]]) -> Spec:
        """``topics``, ``serdes``, ``internal`` and ``changelogs``."""
        shown: Spec = {"topics": {}, "serdes": {}, "internal": {}, "changelogs": {}}
        own_prefix = f"{self._config.application_id}-"
        produced = {topic: records for topic, records in written.items() if records}
        for topic in sorted({*produced, *self._builder.sinks}):
            records = produced.get(topic, [])
            if topic.startswith(own_prefix):
                if self._timed:
                    kind = "changelogs" if topic.endswith("-changelog") else "internal"
                    shown[kind][topic] = [self._raw(record) for record in records]
                continue
            key, value = self._topic_types(topic)
            shown["topics"][topic] = [self._decoded(record, key, value) for record in records]
            shown["serdes"][topic] = {"key": key.spec, "value": value.spec}
        return shown

    def stores(self, stores: Mapping[str, Any]) -> Spec:
        """``stores``; empty for cases that run by the real clock."""
        return {name: self.store(store) for name, store in sorted(stores.items())} if self._timed else {}

    def store(self, store: Any) -> Spec:
        match store.spec.kind.persistent_name:
            case "time_ordered_buffer" | "suppress_buffer":
                return {"type": "internal"}
            case "versioned":
                return {"type": "versioned", "entries": self._versions(store)}
            case "list":
                return {"type": "kv", "entries": [_join_row(*entry) for entry in store.all()]}
            case "subscription":
                return {"type": "kv", "entries": [_subscription(*entry) for entry in store.all()]}
            case "window" | "timestamped_window":
                try:
                    rows = [row(*entry) for entry in store.all()]
                except InvalidStoreError:
                    return {"type": "window", "unreadable": True, "entries": []}
                rows.sort(key=lambda r: (r["key"]["start"], _text(r["key"]["key"])))
                return {"type": "window", "entries": rows}
            case "session":
                rows = [row(*entry) for entry in store.all()]
                rows.sort(key=lambda r: (r["key"]["start"], r["key"]["end"], _text(r["key"]["key"])))
                return {"type": "session", "entries": rows}
            case _:
                return _key_value_rows(store)

    def _topic_types(self, topic: str) -> tuple[Type, Type]:
        if topic in self._builder.sinks:
            return self._builder.sinks[topic]
        if topic == self._config.dead_letter_queue_topic or self._builder.dynamic_sink is None:
            return BYTES, BYTES
        return self._builder.dynamic_sink

    def _raw(self, record: OutputRecord) -> Spec:
        return self._with_context(
            record, {"key_hex": to_json(record.key), "value_hex": to_json(record.value)}
        )

    def _decoded(self, record: OutputRecord, key: Type, value: Type) -> Spec:
        shown = {"key": key.decode(record.key), "value": value.decode(record.value)}
        if key.base == "windowed":
            shown["key_hex"] = to_json(record.key)
        return self._with_context(record, shown)

    def _with_context(self, record: OutputRecord, shown: Spec) -> Spec:
        if self._timed:
            shown["timestamp"] = record.timestamp
        headers = shown_headers(record.headers)
        return {**shown, "headers": headers} if headers else shown

    def _versions(self, store: Any) -> list[Spec]:
        """The versions of all input keys; keys that are not of the store's type have none."""
        rows = []
        for key in sorted(self.keys, key=text):
            try:
                rows += [shown_version(key, version) for version in store.history(key, None, None)]
            except StreamsError:
                continue
        return rows


def _text(key: Any) -> str:
    """The oracle's text of a shown key: that of JSON values is canonical, the fields of a windowed key have their own order."""
    return json.dumps(key, separators=(",", ":"), ensure_ascii=False)


def _key_value_rows(store: Any) -> Spec:
    try:
        return {"type": "kv", "entries": [row(*entry) for entry in store.all()]}
    except InvalidStoreError:
        return {"type": "kv", "iterable": False, "entries": []}


def _join_row(timestamp: int, is_left: bool, key: Any, waiting: tuple[bool, Any]) -> Spec:
    """A record of an outer join that waits for its match; its value says its side once more."""
    side = "left" if is_left else "right"
    shown_key = {"timestamp": timestamp, "side": side, "key": to_json(key)}
    return {"key": shown_key, "value": {"left" if waiting[0] else "right": to_json(waiting[1])}}


def _subscription(key: bytes, stored: tuple[Any, ...]) -> Spec:
    return {"key": to_json(key), **shown_value(stored), "value": "<SubscriptionWrapper>"}
