"""The driver's eyes: threads that write down what comes out, what is committed and what workers say of themselves."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from confluent_kafka import Consumer, KafkaException, TopicPartition

from .history import History

__all__ = ["Prober", "Reader", "Watcher", "get_json"]

_SAMPLE_SECONDS = 0.7
_QUIET = {"log_level": 0, "enable.auto.commit": False, "auto.offset.reset": "earliest"}


class _Repeating(threading.Thread):
    """Calls `look` again and again until it is closed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(daemon=True)
        self._seconds = seconds
        self._closed = threading.Event()

    def look(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        while not self._closed.wait(self._seconds):
            self.look()

    def close(self) -> None:
        self._closed.set()
        self.join()


class Watcher(_Repeating):
    """Follows the output topics, and samples the group's offsets."""

    def __init__(
        self,
        history: History,
        bootstrap: str,
        group: str,
        sources: Iterable[str],
        sinks: Iterable[str],
        dead_letters: str,
        partitions: int,
        *,
        read_committed: bool,
    ) -> None:
        super().__init__(0.0)
        self._history = history
        self._dead_letters = dead_letters
        self._inputs = [TopicPartition(t, p) for t in sources for p in range(partitions)]
        self._outputs = [TopicPartition(t, p) for t in sinks for p in range(partitions)]
        isolation = "read_committed" if read_committed else "read_uncommitted"
        settings = {**_QUIET, "bootstrap.servers": bootstrap}
        self._reader = Consumer({**settings, "group.id": "watcher", "isolation.level": isolation})
        self._reader.assign([TopicPartition(tp.topic, tp.partition, 0) for tp in self._outputs])
        self._group = Consumer({**settings, "group.id": group, "isolation.level": "read_uncommitted"})
        self._sampled = 0.0
        self.committed: dict[str, int] = {}
        self.seen = 0

    def look(self) -> None:
        messages = self._reader.consume(5_000, 0.2)
        for message in messages:
            if message.error() is None:
                self._record(message)
        if time.monotonic() - self._sampled >= _SAMPLE_SECONDS:
            try:
                self._sample()
            except KafkaException:  # a broker has gone: who leads its partitions now?
                with suppress(KafkaException):
                    self._group.list_topics(timeout=5)
            self._sampled = time.monotonic()

    def _record(self, message: Any) -> None:
        key, value = text(message.key()), text(message.value())
        if message.topic() == self._dead_letters:
            self._history.add("dead", key=key, value=value)
            return
        where = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
        self._history.add("output", **where, key=key, value=value)
        self.seen += 1

    def _sample(self) -> None:
        found = self._group.committed(self._inputs, timeout=5)
        if any(tp.error for tp in found):
            return
        offsets = {f"{tp.topic}-{tp.partition}": tp.offset for tp in found if tp.offset >= 0}
        if offsets != self.committed:
            ends = {
                f"{tp.topic}-{tp.partition}": self._group.get_watermark_offsets(tp, timeout=5)[1]
                for tp in self._outputs
            }
            self._history.add("committed", offsets=offsets, ends=ends)
            self.committed = offsets

    def close(self) -> None:
        super().close()
        for _ in range(50):  # the transaction markers of the last commit may still be on their way
            messages = self._reader.consume(5_000, 0.2)
            for message in messages:
                if message.error() is None:
                    self._record(message)
            if not messages and self._at_end():
                break
        self._reader.close()
        self._group.close()

    def _at_end(self) -> bool:
        with suppress(KafkaException):
            positions = {(tp.topic, tp.partition): tp.offset for tp in self._reader.position(self._outputs)}
            return all(
                max(0, positions[tp.topic, tp.partition])
                >= self._reader.get_watermark_offsets(tp, timeout=5)[1]
                for tp in self._outputs
            )
        return False


class Prober(_Repeating):
    """Asks the workers that run whether they are ready."""

    def __init__(
        self,
        history: History,
        ports: Callable[[], Mapping[str, int]],
        progress: Callable[[], tuple[int, int]],
    ) -> None:
        """``progress``: (records not committed yet, anything that grows while something moves)."""
        super().__init__(2.0)
        self._history, self._ports, self._progress = history, ports, progress
        self._before: dict[str, int] = {}

    def look(self) -> None:
        for worker, port in self._ports().items():
            status, body = get_json(port, "/health/ready")
            behind, mark = self._progress()
            moved = mark != self._before.get(worker)
            self._before[worker] = mark
            self._history.add(
                "ready", worker=worker, status=status, state=body.get("state"), behind=behind, moved=moved
            )


class Reader(_Repeating):
    """Asks any worker for any key, all the time."""

    def __init__(
        self, history: History, ports: Callable[[], Mapping[str, int]], store: str, keys: list[str]
    ) -> None:
        super().__init__(0.05)
        self._history, self._ports, self._store, self._keys = history, ports, store, keys
        self._turn = 0

    def look(self) -> None:
        ports = sorted(self._ports().items())
        if not ports:
            return
        self._turn += 1
        worker, port = ports[self._turn % len(ports)]
        key = self._keys[self._turn % len(self._keys)]
        status, body = get_json(port, f"/tables/{self._store}/{quote(key, safe='')}")
        self._history.add("read", worker=worker, key=key, status=status, value=body.get("value"))


def get_json(port: int, path: str, timeout: float = 3.0) -> tuple[int | None, dict[str, Any]]:
    """(status, body) of a worker's answer; (None, {}) when there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None, {}
    finally:
        connection.close()


def text(data: bytes | None) -> str:
    return "" if data is None else data.decode(errors="backslashreplace")
