"""The pump with an event loop, without Kafka."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from streamapp.consumer import ConsumerRecord
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.handling import Handling
from streamapp.consumer.pump import Pump
from streamapp.records import Headers, RecordBatch
from streamapp.serdes import AvroSerde, BytesSerde, JsonSchemaSerde, ListSerde, LocalSchemaRegistry, Serde
from streamapp.serdes.schema_registry import SchemaFormat, SchemaVersion

from ...processes import until
from .test_dispatcher import SOURCES, options


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class Running:
    """A pump that runs a coroutine function."""

    def __init__(self, loop: asyncio.AbstractEventLoop, **given: Any) -> None:
        self.options = options(**given)
        self.dispatcher = Dispatcher(self.options)
        self.handling = Handling(self.options, self.dispatcher, None, None, None)
        self.pump = Pump(self.options, self.dispatcher, self.handling, loop, lambda units: units)
        self.dispatcher.open(SOURCES[0], 0)
        self.offset = 0
        self.pump.start()

    def take_in(self, key: bytes, value: bytes = b"", headers: Headers = ()) -> None:
        batch = RecordBatch([key], [value], [0], [self.offset], [headers] if headers else None)
        self.offset += 1
        self.dispatcher.take_in(SOURCES[0], batch)

    def done(self) -> int:
        return self.dispatcher.look()[0].done

    def stop(self) -> None:
        self.dispatcher.stop()
        self.pump.stop()


def test_a_coroutine_that_is_cancelled_before_its_first_step_is_called_again(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Its record stayed in work for ever, and the records behind it waited for the record."""
    blocking, release = threading.Event(), threading.Event()
    called: list[bytes | None] = []

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        called.append(record.key)
        if record.key == b"a":
            blocking.set()
            release.wait(60)

    run = Running(loop, handler=handle, handler_timeout_ms=200)
    run.take_in(b"a")
    assert blocking.wait(60)
    run.take_in(b"b")
    until(lambda: len(run.handling.timed_out) == 2, 60, lambda: run.handling.timed_out)
    release.set()
    until(lambda: run.done() == 2, 60, lambda: run.dispatcher.look())
    assert called == [b"a", b"b"]
    until(lambda: not run.handling.timed_out, 60, lambda: run.handling.timed_out)
    run.stop()


class AsksARegistry(BytesSerde):
    """A serde whose registry answers at the first record of a schema, when the event loop says so."""

    framed = True

    def __init__(self, answer: threading.Event) -> None:
        self.answer, self.threads = answer, list[threading.Thread]()

    def bind(self, topic: str, is_key: bool) -> Serde[bytes]:
        return self

    def deserialize(self, data: bytes) -> bytes:
        self.threads.append(threading.current_thread())
        assert self.answer.wait(5), "the event loop stood still"
        return data


@pytest.mark.parametrize("headers", [(), (("__value_schema_id", b"\1" + bytes(16)),)])
def test_a_registry_that_does_not_answer_does_not_stop_the_event_loop(
    loop: asyncio.AbstractEventLoop, headers: Any
) -> None:
    answer = threading.Event()
    serde = AsksARegistry(answer)
    threads: list[threading.Thread] = []

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        threads.append(threading.current_thread())

    run = Running(loop, handler=handle, value_serde=serde)
    value = b"x" if headers else b"\0\0\0\0\7x"
    run.take_in(b"k", value, headers)
    until(lambda: bool(serde.threads), 60, lambda: "nothing is read")
    loop.call_soon_threadsafe(answer.set)
    until(lambda: run.done() == 1, 60, lambda: run.dispatcher.look())
    run.take_in(b"k", value, headers)
    until(lambda: run.done() == 2, 60, lambda: run.dispatcher.look())
    assert serde.threads[0] is not threads[0]
    assert serde.threads[1] is threads[1]  # a schema that is known needs no other thread
    run.stop()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_time_of_a_serde_is_not_that_of_the_handler(
    loop: asyncio.AbstractEventLoop, asynchronous: bool
) -> None:
    """While the registry was away for longer than the time-out, coroutines began again and again, and a consumer with a
    plain function ended."""
    answer = threading.Event()
    serde = AsksARegistry(answer)
    seen: list[Any] = []

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        seen.append(record.value)
        await asyncio.sleep(0.1)

    def handle_in_thread(record: ConsumerRecord[Any, Any]) -> None:
        seen.append(record.value)

    run = Running(
        loop,
        handler=handle if asynchronous else handle_in_thread,
        value_serde=serde,
        handler_timeout_ms=300,
    )
    run.take_in(b"k", b"\0\0\0\0\7x")
    until(lambda: bool(serde.threads), 60, lambda: "nothing is read")
    threading.Event().wait(1.5)
    answer.set()
    until(lambda: run.done() == 1, 60, lambda: run.dispatcher.look())
    assert (len(serde.threads), len(seen), run.dispatcher.failure) == (1, 1, None)
    until(lambda: not run.handling.decoded, 60, lambda: run.handling.decoded)
    run.stop()


class Server:
    """A registry whose server answers when the event loop says so."""

    def __init__(self) -> None:
        self.inner, self.answer = LocalSchemaRegistry(), threading.Event()
        self.asked, self.stood_still = threading.Event(), False

    def id_of(self, subject: str, schema: Any, format: SchemaFormat = "AVRO") -> int:
        return self.inner.id_of(subject, schema, format)

    def schema_of(self, schema_id: int, format: SchemaFormat = "AVRO") -> Any:
        self.asked.set()
        self.stood_still = not self.answer.wait(5)
        return self.inner.schema_of(schema_id, format)

    def version_of(self, subject: str, version: int | Literal["latest"] = "latest") -> SchemaVersion:
        return self.inner.version_of(subject, version)


def test_a_serde_inside_another_one_does_not_stop_the_event_loop(loop: asyncio.AbstractEventLoop) -> None:
    """A list does not begin with the id of a schema, so nothing but the registry tells that a record needs an answer."""
    server = Server()
    serde = ListSerde(AvroSerde[Any]('"string"', registry=server))
    seen: list[Any] = []

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        seen.append(record.value)

    run = Running(loop, handler=handle, value_serde=serde)
    run.take_in(b"k", serde.bind("orders", False).serialize(["a"]))
    assert server.asked.wait(60)
    loop.call_soon_threadsafe(server.answer.set)
    until(lambda: run.done() == 1, 60, lambda: run.dispatcher.look())
    assert seen == [["a"]]
    assert not server.stood_still
    run.stop()


def test_the_words_of_an_error_do_not_stop_the_event_loop(loop: asyncio.AbstractEventLoop) -> None:
    """The first record with an id is readable, the second is not: the error names the schema of its writer."""
    server = Server()
    serde = JsonSchemaSerde[Any]({"type": "integer"}, registry=server)
    seen: list[Any] = []

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        seen.append(record.value)

    run = Running(loop, handler=handle, value_serde=serde, on_error="skip")
    value = serde.bind("orders", False).serialize(7)
    run.take_in(b"k", value)
    until(lambda: run.done() == 1, 60, lambda: run.dispatcher.look())
    run.take_in(b"k", value[:5] + b"no")
    assert server.asked.wait(60)
    loop.call_soon_threadsafe(server.answer.set)
    until(lambda: run.dispatcher.look()[0].skipped == 1, 60, lambda: run.dispatcher.look())
    assert seen == [7]
    assert not server.stood_still
    run.stop()
