"""Runs a case on the test driver and records the outcome in the shape of ``expected`` (SPEC.md, 8, 10)."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import Any

from streamapp import StreamsConfig, TopologyTestDriver
from streamapp.errors import InvalidStoreError, StreamsError
from streamapp.records import OutputRecord

from .builder import CaseBuilder
from .functions import extractor
from .queries import answer, row, shown_headers, shown_version
from .types import STRING, Type, canonical, text, to_json

__all__ = ["Outcome", "execute"]

Spec = dict[str, Any]

BYTES = Type("bytes")


@dataclass
class Outcome:
    """What a case gave: ``actual`` has the fields of ``expected``; ``error`` is what ended it."""

    actual: Spec = field(default_factory=dict)
    error: Exception | None = None


def execute(case: Spec) -> Outcome:
    """Builds and runs a case. Never raises: an error is a part of the outcome."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as state_dir:
        run = _Run(case, state_dir, outcome.actual)
        try:
            run.build()
            run.start()
            run.pipe_all()
            run.collect()
        except Exception as error:
            outcome.error = error
            message = (str(error).splitlines() or [""])[0]
            outcome.actual |= {"error": f"{type(error).__name__}: {message}", "error_at": run.where}
            run.collect_after_failure()
        finally:
            run.close()
    return outcome


def _config(case: Spec, state_dir: str) -> StreamsConfig:
    properties = {
        "application.id": "oracle",
        "statestore.cache.max.bytes": 0,
        "default.key.serde": STRING.serde,
        "default.value.serde": STRING.serde,
        "state.dir": state_dir,
        **case.get("config", {}),
    }
    if "default.timestamp.extractor" in properties:
        properties["default.timestamp.extractor"] = extractor(properties["default.timestamp.extractor"])
    return StreamsConfig.from_properties(properties)


class _Run:
    def __init__(self, case: Spec, state_dir: str, actual: Spec) -> None:
        self.case = case
        self.actual = actual
        self.config = _config(case, state_dir)
        self.builder = CaseBuilder(case, self.config)
        self.driver: TopologyTestDriver | None = None
        self.keys: dict[Any, None] = {}
        self.written: dict[str, int] = {}
        self._where = ""

    @property
    def where(self) -> str:
        return self._where or self.builder.where

    def build(self) -> None:
        self.topology = self.builder.build()
        self.actual["describe"] = str(self.topology.describe())

    def start(self) -> None:
        self._where = "start"
        wall_clock = self.case.get("wall_clock_start_ms", 0)
        self.driver = TopologyTestDriver(self.topology, self.config, initial_wall_clock_ms=wall_clock)

    def pipe_all(self) -> None:
        assert self.driver is not None
        queries = []
        for i, step in enumerate(self.case["input"]):
            self._where = f"input[{i}]"
            self.written = {topic: len(records) for topic, records in self.driver.produced.items()}
            if "advance_wall_clock_ms" in step:
                self.driver.advance_wall_clock_time(step["advance_wall_clock_ms"])
            elif "query" in step:
                queries.append(answer(self.driver, step["query"]))
            else:
                self._pipe(self.driver, step)
        self._where = "end"
        if queries:
            self.actual["queries"] = queries

    def _pipe(self, driver: TopologyTestDriver, step: Spec) -> None:
        key_type, value_type = self.builder.topic_types(step["topic"])
        if step.get("key") is not None:
            self.keys[key_type.value(step["key"])] = None
        key, value = key_type.encode(step.get("key")), value_type.encode(step.get("value"))
        if "key_hex" in step:
            key = bytes.fromhex(step["key_hex"])
        if "value_hex" in step:
            value = bytes.fromhex(step["value_hex"])
        headers = tuple((name, None if v is None else v.encode()) for name, v in step.get("headers", []))
        driver.pipe_raw(step["topic"], key, value, step["timestamp"], headers)

    def collect(self) -> None:
        assert self.driver is not None
        if self._timed:
            stores = self._stores(self.driver)
            if stores:
                self.actual["stores"] = stores
        self._collect_topics(self.driver.produced)
        if self.builder.side_effects:
            self.actual["side_effects"] = self.builder.side_effects
        self.actual["metrics"] = {"dropped_records": self.driver.dropped_records}

    def collect_after_failure(self) -> None:
        """Keeps what the inputs before the failing one wrote."""
        if self.driver is not None:
            before = {topic: self.driver.produced[topic][:count] for topic, count in self.written.items()}
            self._collect_topics(before)

    def close(self) -> None:
        try:
            if self.driver is not None:
                self.driver.close()
        except Exception as error:
            if "error" not in self.actual:
                self.actual["error_on_close"] = f"{type(error).__name__}: {error}"

    # ---------------------------------------------------------------------------- topics

    @property
    def _timed(self) -> bool:
        return not self.case.get("ignore_timestamps", False)

    def _collect_topics(self, written: dict[str, list[OutputRecord]]) -> None:
        own_prefix = f"{self.config.application_id}-"
        produced = {topic: records for topic, records in written.items() if records}
        for field_name in ("topics", "serdes", "internal", "changelogs"):
            self.actual[field_name] = {}
        for topic in sorted({*produced, *self.builder.sinks}):
            records = produced.get(topic, [])
            if topic.startswith(own_prefix):
                if self._timed:
                    kind = "changelogs" if topic.endswith("-changelog") else "internal"
                    self.actual[kind][topic] = [self._raw(record) for record in records]
                continue
            key, value = self._topic_types(topic)
            self.actual["topics"][topic] = [self._decoded(record, key, value) for record in records]
            self.actual["serdes"][topic] = {"key": key.spec, "value": value.spec}

    def _topic_types(self, topic: str) -> tuple[Type, Type]:
        if topic in self.builder.sinks:
            return self.builder.sinks[topic]
        if topic == self.config.dead_letter_queue_topic or self.builder.dynamic_sink is None:
            return BYTES, BYTES
        return self.builder.dynamic_sink

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

    # ---------------------------------------------------------------------------- stores

    def _stores(self, driver: TopologyTestDriver) -> Spec:
        return {name: self._store(store) for name, store in sorted(driver.stores.items())}

    def _store(self, store: Any) -> Spec:
        match store.kind:
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
                rows.sort(key=lambda r: (r["key"]["start"], canonical(r["key"]["key"])))
                return {"type": "window", "entries": rows}
            case "session":
                rows = [row(*entry) for entry in store.all()]
                rows.sort(key=lambda r: (r["key"]["start"], r["key"]["end"], canonical(r["key"]["key"])))
                return {"type": "session", "entries": rows}
            case _:
                return _key_value_rows(store)

    def _versions(self, store: Any) -> list[Spec]:
        """The versions of all input keys; keys that are not of the store's type have none."""
        rows = []
        for key in sorted(self.keys, key=text):
            try:
                rows += [shown_version(key, version) for version in store.history(key, None, None)]
            except StreamsError:
                continue
        return rows


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


def _subscription(key: bytes, stored: tuple[Any, int]) -> Spec:
    return {"key": to_json(key), "value": "<SubscriptionWrapper>", "timestamp": stored[1]}
