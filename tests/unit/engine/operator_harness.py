"""Runs one operator without a task: records what it forwards, drops and writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from streamapp import LongSerde
from streamapp.engine.operator import Operator, ProcessFn


class FakeTask:
    dropped = 0

    reasons: tuple[str, ...] = ()


class FakeStore:
    """A table's store that remembers what was put."""

    kind = "timestamped"
    cached = False
    versioned = False

    def __init__(self, **rows: tuple[Any, int]) -> None:
        self.rows: dict[Any, tuple[Any, int]] = dict(rows)
        self.listener: Any = None
        self.spec = SimpleNamespace(value_serde=LongSerde())

    def get(self, key: Any) -> tuple[Any, int] | None:
        return self.rows.get(key)

    def writer(self) -> Any:
        return self.put

    def reader_before_put(self) -> Any:
        return self.get

    def reader(self) -> Any:
        return self.get

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = (value, timestamp)

    def set_flush_listener(self, listener: Any, send_old: bool = True) -> None:
        self.listener = listener


class Harness:
    """A node context, and the operator bound in it."""

    name = "node"

    def __init__(self, operator: Operator, **stores: Any) -> None:
        self.task: Any = FakeTask()
        self.forwarded: list[tuple[Any, Any, int]] = []
        self.children: dict[str, list[tuple[Any, Any, int]]] = {}
        self.headers: list[Any] = []
        self._stores = stores
        self.process = operator.bind(self)

    def drop(self, reason: str, count: int = 1, *, in_total: bool = True) -> None:
        if in_total:
            self.task.dropped += count
        self.task.reasons += (reason,)

    def handled(self, function: Any) -> Any:
        return function

    def forward(self, key: Any, value: Any, timestamp: int, headers: Any) -> None:
        self.forwarded.append((key, value, timestamp))
        self.headers.append(headers)

    def forward_to(self, child: str) -> ProcessFn:
        got = self.children.setdefault(child, [])

        def forward(key: Any, value: Any, timestamp: int, headers: Any) -> None:
            got.append((key, value, timestamp))

        return forward

    def store(self, name: str) -> Any:
        return self._stores[name]

    def send(self, *records: tuple[Any, Any, int]) -> list[tuple[Any, Any, int]]:
        """Processes records and returns what came out of them."""
        start = len(self.forwarded)
        for key, value, timestamp in records:
            self.process(key, value, timestamp, ())
        return self.forwarded[start:]
