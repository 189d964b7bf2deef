"""Threads of the driver, which write outputs, committed offsets and answers of workers into the history."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from .history import History

__all__ = ["LogReader", "Prober", "Reader", "Watcher", "get_json"]

_SAMPLE_SECONDS = 0.7
_OPEN_TRANSACTION_SECONDS = 60.0
"""Longer than the transaction of a killed worker stays open. Brokers look every five seconds for transactions whose
time-out is over."""
_QUIET = {"log_level": 0, "enable.auto.commit": False, "auto.offset.reset": "earliest"}


class _Repeating(threading.Thread):
    """Calls `look` again and again until `close`. A call that fails goes into the history, and the case fails."""

    def __init__(self, history: History, seconds: float) -> None:
        super().__init__(daemon=True)
        self._history = history
        self._seconds = seconds
        self._closed = threading.Event()

    def look(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        while not self._closed.wait(self._seconds):
            try:
                self.look()
            except Exception as exc:
                what = f"the driver's {type(self).__name__} goes on: {exc!r}"
                self._history.add("wait", what=what, seconds=0, ok=False)
                raise

    def close(self) -> None:
        self._closed.set()
        self.join()


def _leave(client: Consumer) -> None:
    """Closes a client in a thread. The client may have forgotten all brokers, and then takes a whole session to close.

    See docs/decisions/clients-are-opened-anew.md.
    """
    threading.Thread(target=client.close, daemon=True).start()


class LogReader:
    """Reads partitions from their beginnings, and knows if they are read up to the ends of their logs.

    For a reader of committed records, a log ends where its oldest open transaction begins. Later records come only when
    this transaction has ended. So a second client asks for the real ends.
    """

    def __init__(self, bootstrap: str, partitions: Iterable[TopicPartition], *, read_committed: bool) -> None:
        self.partitions = list(partitions)
        settings = {**_QUIET, "bootstrap.servers": bootstrap, "group.id": "reader"}
        isolation = "read_committed" if read_committed else "read_uncommitted"
        self._of_reader = {
            **settings,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "error_cb": self._on_error,
        }
        self._reader = Consumer(self._of_reader)
        self._reader.assign([TopicPartition(tp.topic, tp.partition, 0) for tp in self.partitions])
        self._lost_at: float | None = None
        self._of_log = {**settings, "isolation.level": "read_uncommitted"}
        self._log = Consumer(self._of_log)
        self._lock = threading.Lock()
        self._read = {(tp.topic, tp.partition): 0 for tp in self.partitions}

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._lost_at is None:
            self._lost_at = time.monotonic()

    def records(self) -> Iterator[Message]:
        """The records that have arrived. A record counts as read when the caller asks for the next one."""
        if self._lost_at is not None and time.monotonic() - self._lost_at > 5.0:
            self._lost_at = None
            _leave(self._reader)
            self._reader = Consumer(self._of_reader)
            self._reader.assign([TopicPartition(*where, offset) for where, offset in self._read.items()])
        for message in self._reader.consume(5_000, 0.2):
            where = message.topic(), message.partition()
            if message.error() is None:
                yield message
                self._read[where] = message.offset() + 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                self._read[where] = message.offset()

    def ends(self) -> dict[str, int]:
        """``topic-partition`` -> the end of the log. Raises `KafkaException`."""
        with self._lock:
            try:
                return {
                    f"{tp.topic}-{tp.partition}": self._log.get_watermark_offsets(tp, timeout=5)[1]
                    for tp in self.partitions
                }
            except KafkaException:
                _leave(self._log)
                self._log = Consumer(self._of_log)
                raise

    def rest(self, seconds: float = _OPEN_TRANSACTION_SECONDS) -> Iterator[Message]:
        """The records up to the end of the log. Stops after so many seconds, even before the end."""
        deadline = time.monotonic() + seconds
        while not self.at_end and time.monotonic() < deadline:
            yield from self.records()

    @property
    def at_end(self) -> bool:
        with suppress(KafkaException):
            ends = self.ends()
            return all(read >= ends[f"{topic}-{p}"] for (topic, p), read in self._read.items())
        return False

    def close(self) -> None:
        self._reader.close()
        self._log.close()


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
        super().__init__(history, 0.0)
        self._dead_letters = dead_letters
        self._inputs = [TopicPartition(t, p) for t in sources for p in range(partitions)]
        outputs = [TopicPartition(t, p) for t in sinks for p in range(partitions)]
        self._reader = LogReader(bootstrap, outputs, read_committed=read_committed)
        self._of_group = {**_QUIET, "bootstrap.servers": bootstrap, "group.id": group}
        self._group = Consumer(self._of_group)
        self._sampled = 0.0
        self.committed: dict[str, int] = {}
        self.seen = 0

    def look(self) -> None:
        for message in self._reader.records():
            self._record(message)
        if time.monotonic() - self._sampled >= _SAMPLE_SECONDS:
            try:
                self._sample()
            except KafkaException:
                _leave(self._group)
                self._group = Consumer(self._of_group)
            self._sampled = time.monotonic()

    @property
    def at_end(self) -> bool:
        """True if all outputs up to the ends of their logs are in the history."""
        return self._reader.at_end

    def _record(self, message: Message) -> None:
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
            self._history.add("committed", offsets=offsets, ends=self._reader.ends())
            self.committed = offsets

    def close(self) -> None:
        super().close()
        for message in self._reader.rest():
            self._record(message)
        self._reader.close()
        self._group.close()


class Prober(_Repeating):
    """Asks the workers that run whether they are ready."""

    def __init__(
        self,
        history: History,
        ports: Callable[[], Mapping[str, int]],
        progress: Callable[[], tuple[int, int]],
    ) -> None:
        """``progress`` gives the number of records that are not committed yet, and a number that grows while something
        moves."""
        super().__init__(history, 2.0)
        self._ports, self._progress = ports, progress
        self._before: dict[str, int] = {}

    def look(self) -> None:
        for worker, port in self._ports().items():
            status, body = get_json(port, "/health/ready")
            behind, mark = self._progress()
            moved = mark != self._before.get(worker)
            self._before[worker] = mark
            self._history.add(
                "ready",
                worker=worker,
                status=status,
                state=body.get("state"),
                reason=body.get("reason"),
                behind=behind,
                moved=moved,
            )


class Reader(_Repeating):
    """Asks the workers in turn for one key after the other, until `close`."""

    def __init__(
        self, history: History, ports: Callable[[], Mapping[str, int]], store: str, keys: list[str]
    ) -> None:
        super().__init__(history, 0.05)
        self._ports, self._store, self._keys = ports, store, keys
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
    """The HTTP status and the body of a worker's answer; (None, {}) without an answer."""
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
