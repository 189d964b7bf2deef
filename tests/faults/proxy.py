"""A TCP proxy between workers and one broker, which can misbehave like a network, or like a broker.

The proxy knows where Kafka's requests and responses begin (a length in front of each), so it can lose a single one.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Literal

__all__ = ["COMMITS", "JOIN", "Link", "Proxy"]

Way = Literal["up", "down"]
"""Up: from the worker to the broker."""

COMMITS = {"OffsetCommit": 8, "TxnOffsetCommit": 28, "EndTxn": 26}
"""Kafka's request types that make up a commit."""
JOIN = 11
_METADATA = 3
_END_TRANSACTION = 26
_NOT_COORDINATOR = 16
_FLEXIBLE = 9
"""From this version on, metadata requests have compact arrays and strings. librdkafka uses such a version, and aiokafka
an older one."""


class Proxy:
    """Listens on ``port`` of this host and connects to ``target``. Its methods may be called from any thread."""

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self.lost = 0
        """Requests or responses that were lost on purpose."""
        self._loop: asyncio.AbstractEventLoop
        self._closed: asyncio.Event
        self._writers: set[asyncio.StreamWriter] = set()
        self._refusing = False
        self._delay = 0.0
        self._flowing: dict[Way, asyncio.Event] = {}
        self._to_lose: tuple[frozenset[int], Way] | None = None
        self._resigned = False
        self.refused = 0
        """Commits that were answered with NOT_COORDINATOR."""
        self._forgets = False
        self.forgotten = 0
        """Metadata responses that were changed to name no brokers."""
        self._started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run()), name=f"proxy-{port}", daemon=True
        )
        self._thread.start()
        self._started.wait(10)

    def cut(self) -> None:
        """Ends every connection, and closes new connections at once."""
        self._call(self._cut)

    def hole(self, *ways: Way) -> None:
        """Keeps connections, but passes nothing on, in the given directions (default: both)."""
        for way in ways or ("up", "down"):
            self._call(self._flowing[way].clear)

    def delay(self, seconds: float) -> None:
        """Holds each request and each response back for so many seconds."""
        self._delay = seconds

    def lose(self, requests: Iterable[int], way: Way) -> None:
        """Loses the next request of these types ("up"), or the response to the request ("down"), and the connection."""
        self._to_lose = frozenset(requests), way

    def forget_brokers(self) -> None:
        """Changes answers to librdkafka so that they name no brokers.

        A broker that counted as dead may answer so when it has just come back.
        """
        self._forgets = True

    def resign(self) -> None:
        """Refuses to end transactions, as a broker does that is no longer their coordinator."""
        self._resigned = True

    def heal(self) -> None:
        """Takes all faults back."""
        self._refusing, self._delay, self._to_lose = False, 0.0, None
        self._forgets = self._resigned = False
        for event in self._flowing.values():
            self._call(event.set)

    def close(self) -> None:
        self._call(self._closed.set)
        self._thread.join(5)

    def _call(self, fn: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(fn)

    def _cut(self) -> None:
        self._refusing = True
        for writer in self._writers:
            writer.transport.abort()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()
        for way in ("up", "down"):
            self._flowing[way] = asyncio.Event()
            self._flowing[way].set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._started.set()
        await self._closed.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            if self._refusing:
                return
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
            writers.append(up_writer)
            self._writers.update(writers)
            marked: set[int] = set()
            metadata: set[int] = set()
            async with asyncio.TaskGroup() as pipes:
                pipes.create_task(self._pipe("up", reader, up_writer, writer, marked, metadata))
                pipes.create_task(self._pipe("down", up_reader, writer, up_writer, marked, metadata))
        except* (OSError, EOFError):
            pass  # either end has closed, or the broker does not run: the worker sees a closed connection
        finally:
            self._writers.difference_update(writers)
            for each in writers:
                each.transport.abort()

    async def _pipe(
        self,
        way: Way,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        marked: set[int],
        metadata: set[int],
    ) -> None:
        """Passes frames on in one direction. ``back`` leads in the other direction.

        ``marked`` has the correlation ids of requests whose response is to be lost. ``metadata`` has those of requests
        whose response names the brokers.
        """
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(size, "big"))
            if self._loses(way, frame, marked):
                self.lost += 1
                raise ConnectionAbortedError
            if self._delay:
                await asyncio.sleep(self._delay)
            await self._flowing[way].wait()
            if way == "up" and self._resigned and frame[:2] == _END_TRANSACTION.to_bytes(2, "big"):
                self.refused += 1
                correlation, throttle = frame[4:8], bytes(4)
                answer = correlation + throttle + _NOT_COORDINATOR.to_bytes(2, "big")
                back.write(len(answer).to_bytes(4, "big") + answer)
                continue
            frame = self._forget(way, frame, metadata)
            writer.write(len(frame).to_bytes(4, "big") + frame)
            await writer.drain()

    def _forget(self, way: Way, frame: bytes, metadata: set[int]) -> bytes:
        if way == "up":
            kind, version, correlation = struct.unpack_from(">hhi", frame)
            if kind == _METADATA and version >= _FLEXIBLE:
                metadata.add(correlation)
        elif (correlation := int.from_bytes(frame[:4], "big")) in metadata:
            metadata.discard(correlation)
            if self._forgets:
                self.forgotten += 1
                return _without_brokers(frame)
        return frame

    def _loses(self, way: Way, frame: bytes, marked: set[int]) -> bool:
        if way == "down":
            return bool(marked) and int.from_bytes(frame[:4], "big") in marked
        if self._to_lose is not None:
            types, lost_way = self._to_lose
            kind, _, correlation = struct.unpack_from(">hhi", frame)
            if kind in types:
                self._to_lose = None
                if lost_way == "up":
                    return True
                marked.add(correlation)
        return False


def _without_brokers(frame: bytes) -> bytes:
    """A response to a metadata request (KIP-482) with an empty list of brokers."""
    begin = at = 9  # behind correlation id, tags and throttle time
    count, at = _uvarint(frame, at)
    for _ in range(count - 1):
        length, at = _uvarint(frame, at + 4)  # the id
        rack, at = _uvarint(frame, at + length - 1 + 4)  # host and port
        _, at = _uvarint(frame, at + max(0, rack - 1))  # no tags
    return frame[:begin] + b"\x01" + frame[at:]


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind the number."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


class Link:
    """The way of a worker to all brokers of a cluster. Each call goes to the proxies of all brokers."""

    def __init__(self, proxies: list[Proxy]) -> None:
        self.proxies = proxies
        self.bootstrap_servers = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)

    def cut(self) -> None:
        for proxy in self.proxies:
            proxy.cut()

    def hole(self, *ways: Way) -> None:
        for proxy in self.proxies:
            proxy.hole(*ways)

    def delay(self, seconds: float) -> None:
        for proxy in self.proxies:
            proxy.delay(seconds)

    def lose(self, requests: Iterable[int], way: Way) -> None:
        for proxy in self.proxies:
            proxy.lose(requests, way)

    def forget_brokers(self) -> None:
        for proxy in self.proxies:
            proxy.forget_brokers()

    def resign(self) -> None:
        for proxy in self.proxies:
            proxy.resign()

    @property
    def refused(self) -> int:
        return sum(proxy.refused for proxy in self.proxies)

    @property
    def forgotten(self) -> int:
        return sum(proxy.forgotten for proxy in self.proxies)

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.heal()

    @property
    def lost(self) -> int:
        return sum(proxy.lost for proxy in self.proxies)

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
