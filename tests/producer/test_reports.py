"""Reports run code of the application, which may call the producer again."""

from __future__ import annotations

import _thread
import asyncio
import ctypes
import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from itertools import repeat
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from streamapp.producer import (
    BufferFull,
    DeliveryError,
    DeliveryReport,
    ReliableProducer,
    SyncReliableProducer,
    plain_client,
)
from streamapp.producer.buffer import Buffer
from streamapp.producer.counts import Counts
from streamapp.producer.in_order import _LoopReports
from streamapp.producer.outcomes import Outcomes
from streamapp.producer.parcel import Parcel, Reports
from streamapp.records import OutputRecord

from ..processes import until
from .topics import Topics

OUTAGE = """
import time
from streamapp.errors import StreamsError
from streamapp.producer import DeliveryError, SyncReliableProducer

with SyncReliableProducer("orders", bootstrap_servers="127.0.0.1:9", delivery_timeout_ms=300) as producer:
    reports = [producer.send_soon("orders", value=b"v") for _ in range(5)]
    seen = []

    def look(done):
        try:
            producer.flush(0.01)
        except StreamsError as error:
            seen.append(error)

    for report in reports:
        report.add_done_callback(look)
    for report in reports:
        assert isinstance(report.exception(30), DeliveryError)
    while len(seen) < 5:
        time.sleep(0.01)
    print(producer.metrics.failed, "failed")
"""


def test_errors_that_nobody_asks_for_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    dead = {"bootstrap_servers": "127.0.0.1:9", "delivery_timeout_ms": 300}
    with SyncReliableProducer("careless", **dead) as producer:
        for _ in range(5):
            producer.send_soon("orders", value=b"v")
        assert producer.flush(30_000)
        until(lambda: "nobody has asked the future" in caplog.text, 30, lambda: caplog.text)
        with pytest.raises(DeliveryError):
            producer.send("orders", value=b"v")
        heard: list[Any] = []
        producer.send_soon("orders", value=b"v").add_done_callback(heard.append)
    assert len(heard) == 1
    first, last = [each.getMessage() for each in caplog.records if "nobody has asked" in each.getMessage()]
    assert first.startswith(
        "producer careless: a record was not sent, and nobody has asked the future of its report: "
    )
    assert (
        last
        == "producer careless: 5 records were not sent, and nobody has asked the futures of their reports"
    )


def test_records_that_fail_together_do_not_end_the_process() -> None:
    """A process of its own, because confluent-kafka ended it: librdkafka's callbacks asked for the names of topics."""
    done = subprocess.run([sys.executable, "-c", OUTAGE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "5 failed\n"


class Scripted:
    """librdkafka's producer with a rare order of callbacks, which no broker can bring about at will.

    The first client sends a record, the connection fails without an answer, and the client ends for another reason. The
    client gives the record back before it tells of the failed connection.
    """

    clients: ClassVar[list[Scripted]] = []

    def __init__(self, settings: dict[str, Any]) -> None:
        self._tell_failure = settings["error_cb"]
        self.reports: list[Callable[..., None]] = []
        self._polls = repeat(None) if self.clients else self._first()
        self.clients.append(self)

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, report: Callable[..., None], **_: Any
    ) -> None:
        self.reports.append(report)

    def _first(self) -> Iterator[KafkaError | None]:
        while not self.reports:
            yield None
        yield KafkaError(KafkaError._GAPLESS_GUARANTEE, "the client ends", fatal=True)
        self.reports[0](KafkaError(KafkaError._PURGE_QUEUE), SimpleNamespace(partition=lambda: 0))
        yield None
        timed_out = "1 request(s) timed out: disconnect (after 402ms in state UP)"
        self._tell_failure(KafkaError(KafkaError._TIMED_OUT, timed_out))
        yield from repeat(None)

    def poll(self, seconds: float) -> None:
        time.sleep(0.001)
        if error := next(self._polls):
            raise KafkaException(error)

    flush = poll

    def purge(self, in_queue: bool = True, in_flight: bool = True) -> None:
        pass


def test_a_record_that_may_be_written_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "clients", [])
    monkeypatch.setattr(plain_client, "Producer", Scripted)
    with SyncReliableProducer("orders", bootstrap_servers="127.0.0.1:9") as producer:
        failed = producer.send_soon("orders", value=b"v").exception(30)
        assert isinstance(failed, DeliveryError)
        assert failed.written is None
        until(lambda: len(Scripted.clients) == 2, 30, lambda: Scripted.clients)
    assert not Scripted.clients[1].reports


def test_callbacks_run_one_at_a_time_in_order_and_before_the_end_of_a_flush(topics: Topics) -> None:
    topic, count = topics.create(1), 3_000
    offsets: list[int | None] = []
    threads: set[str] = set()
    inside: list[int] = [0]

    def note(done: Future[DeliveryReport]) -> None:
        inside[0] += 1
        threads.add(threading.current_thread().name)
        time.sleep(0)  # another thread would come in here
        assert inside == [1]
        offsets.append(done.result().offset)
        inside[0] -= 1

    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap) as producer:
        for _ in range(count):
            report = producer.send_soon(topic, value=b"v")
            assert not report.cancel()
            report.add_done_callback(note)
        assert producer.flush(60_000)
        assert offsets == list(range(count))
    assert threads == {"producer-reports"}


def test_a_flush_that_ctrl_c_ends_loses_no_report(topics: Topics) -> None:
    """The flush once made reports in the main thread. A Ctrl-C there lost the other reports of the pass."""
    topic, count = topics.create(1), 1_000

    def interrupt(done: Future[DeliveryReport]) -> None:
        _thread.interrupt_main()

    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap, linger_ms=100_000) as producer:
        reports = [producer.send_soon(topic, value=b"v") for _ in range(count)]
        assert all(report.running() for report in reports)
        reports[0].add_done_callback(interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.flush(60_000)
        assert producer.flush(60_000)
        assert all(report.done() and not report.running() for report in reports)
        assert (producer.metrics.confirmed, producer.metrics.buffered_records) == (count, 0)


class Exiting:
    """A sender with a callback that calls `sys.exit`."""

    def tell(self, reports: Reports, error: BaseException | None) -> None:
        sys.exit(1)


class Told(list[Reports]):
    """A sender that keeps its reports."""

    def tell(self, reports: Reports, error: BaseException | None) -> None:
        self.append(reports)


def test_a_callback_that_exits_leaves_the_reports_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    buffer, counts, told = Buffer(3, 300), Counts(), Told()
    record = OutputRecord("orders", None, b"v", 0)
    parcels = [Parcel(1, 100, records=(record,), sender=sender) for sender in (Exiting(), told, Exiting())]
    for parcel in parcels:
        assert buffer.try_reserve(parcel)
        counts.accepted(parcel)
    outcomes = Outcomes("orders", buffer, counts)
    outcomes.start()
    outcomes.confirmed([(parcel, parcel.reports()) for parcel in parcels[:2]])
    outcomes.failed(parcels[2], DeliveryError("orders", "too large", False))
    outcomes.end()
    assert [reports[0].topic for reports in told] == ["orders"]
    assert counts.settled(0)
    assert caplog.text.count("a callback of a report failed") == 2


@pytest.mark.parametrize("spills", [False, True], ids=["idempotent", "spilled"])
def test_a_callback_that_does_not_come_back_is_named(
    spills: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback that waited for its own sender held up the producer for ever, without a word."""
    monkeypatch.setattr("streamapp.producer.outcomes._CALLBACK_SECONDS", 0.1)
    options: dict[str, Any] = (
        {"spill_dir": tmp_path, "spill_after_ms": 1} if spills else {"delivery_timeout_ms": 300}
    )
    back = threading.Event()

    def wait_for_room(done: Future[Any]) -> None:
        back.wait()

    with SyncReliableProducer[bytes, bytes]("orders", bootstrap_servers="127.0.0.1:9", **options) as producer:
        producer.send_soon("orders", value=b"v").add_done_callback(wait_for_room)
        until(lambda: "in wait_for_room" in caplog.text, 60, lambda: caplog.text)
        back.set()
    assert caplog.text.count("the producer orders waits for a callback of a report") == 1


def test_the_end_of_a_producer_names_the_callback_for_which_it_waits(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamapp.producer.outcomes._CALLBACK_SECONDS", 0.1)
    monkeypatch.setattr("streamapp.producer.outcomes._LOOK_SECONDS", 0.05)
    back = threading.Event()

    class Waiting:
        def tell(self, reports: Reports, error: BaseException | None) -> None:
            back.wait()

    parcel = Parcel(1, 100, records=(OutputRecord("orders", None, b"v", 0),), sender=Waiting())
    outcomes = Outcomes("orders", Buffer(1, 100), Counts())
    outcomes.start()
    outcomes.confirmed([(parcel, parcel.reports())])
    end = threading.Thread(target=outcomes.end)
    end.start()
    until(lambda: "back.wait()" in caplog.text, 60, lambda: caplog.text)
    back.set()
    end.join(60)
    assert not end.is_alive()


@pytest.mark.parametrize("options", [{}, {"transactions": True}], ids=["idempotent", "transactions"])
def test_a_call_that_the_end_of_its_producer_overtakes_takes_nothing(options: dict[str, Any]) -> None:
    """Without transactions, librdkafka took the record, and nobody told its sender."""
    producer = SyncReliableProducer[bytes, bytes]("orders", bootstrap_servers="127.0.0.1:9", **options)
    with producer:
        core, channel = producer._core, producer._core.check_open()
        parcel = core.parcel((OutputRecord("orders", None, b"v", 0),), Told())
        assert core.try_reserve(parcel)
    assert not channel.put(parcel)
    core.give_up(parcel)
    assert producer.metrics.buffered_records == 0


class Interrupted:
    """librdkafka's producer, with a Ctrl-C that Python notices right after a record is taken."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def produce(self, *arguments: Any, **options: Any) -> None:
        self._producer.produce(*arguments, **options)
        raise KeyboardInterrupt

    def __len__(self) -> int:
        return len(self._producer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


def test_an_interrupted_call_leaves_the_counts_right(topics: Topics) -> None:
    topic = topics.create(1)
    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap) as producer:
        channel: Any = producer._core.check_open()
        channel._client._producer = Interrupted(channel._client._producer)
        with pytest.raises(KeyboardInterrupt):
            producer.send_soon(topic, value=b"v")
        assert producer.flush(60_000)
        assert len(channel._client) == 0
        assert producer.metrics.confirmed == 1
    assert topics.values(topic) == [b"v"]


PRESS: Any = ctypes.PYFUNCTYPE(None, *[ctypes.py_object] * 3)(("PyErr_SetInterrupt", ctypes.pythonapi))
"""Ctrl-C, as a trace function in C: so Python raises `KeyboardInterrupt` only where a signal can really come."""
TRACED = str(Path(plain_client.__file__).parent), threading.__file__


def interrupt(call: Callable[[], object], after: int) -> bool:
    """Makes a call with a Ctrl-C after so many bytecodes of the producer. Returns False if the call has fewer."""
    left = after

    def follow(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        left -= event == "opcode"
        return follow if left > 0 else PRESS if left == 0 else None

    def stop(signum: int, frame: FrameType | None) -> None:
        sys.settrace(None)
        raise KeyboardInterrupt

    handler, tracer = signal.signal(signal.SIGINT, stop), sys.gettrace()
    try:
        sys.settrace(follow)
        call()
        sys.settrace(None)  # Python notices here a Ctrl-C of the last bytecodes
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(tracer)
        signal.signal(signal.SIGINT, handler)
    return False


@pytest.mark.parametrize(
    ("options", "value"), [({}, b"v"), ({}, b"v" * 2_000_000), ({"transactions": True}, b"v")],
    ids=["a record", "a record that librdkafka refuses", "transactions"],
)  # fmt: skip
def test_ctrl_c_at_any_bytecode_of_a_call_leaves_counts_and_buffer_right(
    topics: Topics, options: dict[str, Any], value: bytes
) -> None:
    """An interrupted call once left a count that never settled, or space in the buffer, or a lock."""
    topic, after = topics.create(1), 1
    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap, **options) as producer:
        while interrupt(lambda: producer.send_soon(topic, value=value), after):
            after += 1
        assert after > 100
        assert producer.flush(60_000)
        metrics = producer.metrics
        assert (metrics.buffered_records, metrics.buffered_bytes) == (0, 0)
        assert producer.send_soon(topic, value=b"w").result(60)
    assert topics.values(topic) == [b"v"] * metrics.confirmed + [b"w"]


def test_a_producer_reports_to_the_loop_of_the_call(topics: Topics) -> None:
    topic = topics.create(1)
    producer = ReliableProducer[bytes, bytes]("orders", bootstrap_servers=topics.bootstrap)

    async def send() -> list[int | None]:
        reports = await asyncio.gather(
            producer.send_soon(topic, value=b"0"), producer.send(topic, value=b"1")
        )
        return [report.offset for report in reports]

    asyncio.run(producer.__aenter__())
    assert asyncio.run(asyncio.wait_for(send(), 60)) == [0, 1]
    asyncio.run(producer.__aexit__(None, None, None))


async def test_the_memory_of_a_refused_record_is_free_after_its_report() -> None:
    """The garbage collector does not know parcels, so it cannot end a cycle through one."""
    async with ReliableProducer[bytes, bytes](
        "orders", bootstrap_servers="127.0.0.1:9", buffer_bytes=100
    ) as producer:
        report: asyncio.Future[DeliveryReport] = asyncio.get_running_loop().create_future()
        try:
            await producer._order.post(OutputRecord("orders", None, b"v" * 100, 0), report)
        except BufferFull as error:
            report.set_exception(error)
        assert isinstance(report.exception(), BufferFull)
        left = weakref.ref(report)
        del report
        gc.collect()
        assert left() is None


class _Interrupted(asyncio.Future[int]):
    """A future whose result a Ctrl-C interrupts once."""

    interrupted = False

    def set_result(self, result: int) -> None:
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        super().set_result(result)


def test_a_ctrl_c_between_two_reports_of_a_loop_drops_none() -> None:
    loop = asyncio.new_event_loop()
    with closing(loop):
        reports = _LoopReports(loop)
        futures = [loop.create_future(), _Interrupted(loop=loop), loop.create_future()]
        for number, future in enumerate(futures):
            reports.set(future, number, None)
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(futures[2])
        assert [future.done() for future in futures] == [True, False, False]
        assert loop.run_until_complete(asyncio.wait_for(futures[2], 60)) == 2
        assert futures[1].result() == 1
