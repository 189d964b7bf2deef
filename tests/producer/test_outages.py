"""The local log: brokers that go, processes that are killed at each step, stops with records that nobody has confirmed."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamapp import ConfigError, LockError
from streamapp.broker import LocalKafka
from streamapp.cli import main
from streamapp.producer import BufferFull, DeliveryReport, SyncReliableProducer
from streamapp.producer.parcel import record_bytes
from streamapp.producer.spill_log import LoggedParcel, SpillLog
from streamapp.records import OutputRecord

from ..brokers import LightKafka
from ..processes import Worker, start_module, until
from .topics import Topics

NOWHERE = "127.0.0.1:9"
COUNT = 500
ALL = [b"%d" % number for number in range(COUNT)]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker that tests of this module may kill."""
    with LightKafka(tmp_path_factory.mktemp("mortal"), brokers=1, port=0) as broker:
        yield broker


def spilled(folder: Path, topic: str, count: int = COUNT) -> None:
    """A local log with numbers, as an outage leaves it."""
    with SyncReliableProducer(
        "numbers", bootstrap_servers=NOWHERE, spill_dir=folder, spill_after_ms=50, close_timeout_ms=100
    ) as producer:
        reports = [producer.send_soon(topic, key=b"k", value=b"%d" % number) for number in range(count)]
        assert all(report.result(30).spilled for report in reports)
        metrics = producer.metrics
        assert (metrics.events, metrics.unconfirmed, metrics.spilled) == (count, count, count)


def start(bootstrap: str, topic: str, folder: Path, first: int, count: int, failpoint: str = "") -> Worker:
    log = folder.with_name(f"sender-{first}-{count}.log")
    arguments = (bootstrap, topic, str(folder), str(first), str(count))
    return start_module("tests.producer.sender", *arguments, log=log, failpoint=failpoint)


def test_brokers_that_go_and_come_back(mortal: LocalKafka, tmp_path: Path) -> None:
    topics = Topics(mortal.bootstrap_servers)
    topic = topics.create()
    told: dict[str, list[int]] = {}

    def note(number: int, done: Future[DeliveryReport]) -> None:
        told.setdefault(threading.current_thread().name, []).append(number)

    with SyncReliableProducer(
        "numbers",
        bootstrap_servers=mortal.bootstrap_servers,
        spill_dir=tmp_path / "spill",
        spill_after_ms=500,
    ) as producer:
        reports = []
        for number in range(3_000):
            if number == 1_000:
                mortal.kill_broker(1)
            reports.append(producer.send_soon(topic, key=b"%d" % (number % 11), value=b"%d" % number))
            reports[-1].add_done_callback(partial(note, number))
            metrics = producer.metrics
            assert metrics.events == metrics.confirmed + metrics.unconfirmed + metrics.failed
        kept = [report.result(60) for report in reports]
        assert any(report.spilled for report in kept)
        told.pop("MainThread", None)  # the callbacks that came after their reports
        assert [*told] == ["producer-reports"]
        assert told["producer-reports"] == sorted(told["producer-reports"])
        assert producer.metrics.spilled
        mortal.start_broker(1)
        assert producer.flush(120_000)
        metrics = producer.metrics
        assert (metrics.events, metrics.confirmed, metrics.spilled, metrics.failed) == (3_000, 3_000, 0, 0)
        # Back to the way through memory, once the coordinator is as fast as before.
        total = 3_001
        while producer.send(topic, key=b"last", value=b"%d" % (total - 1)).spilled:
            assert producer.flush(120_000)
            total += 1
    by_key: dict[bytes | None, list[int]] = {}
    for rows in topics.read(topic).values():
        for key, value in rows:
            by_key.setdefault(key, []).append(int(value or b""))
    assert sorted(number for numbers in by_key.values() for number in numbers) == list(range(total))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_killed_process_leaves_its_log_to_the_next(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    folder = tmp_path / "spill"
    process = start(NOWHERE, topic, folder, 0, COUNT)
    until(lambda: process.text().count("safe ") == COUNT, 60, process.text)
    assert f"safe {COUNT - 1} spilled\n" in process.text()
    process.close()
    with SyncReliableProducer("numbers", bootstrap_servers=topics.bootstrap, spill_dir=folder) as producer:
        assert producer.metrics.events == COUNT
        # Records of today come behind those of the log.
        producer.send_soon(topic, key=b"k", value=b"new")
        assert producer.flush(60_000)
        assert producer.metrics.confirmed == COUNT + 1
    assert topics.values(topic) == [*ALL, b"new"]


STEPS = ("producer-sent", "producer-bookmarked", "producer-committed", "spill-removed")


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_while_the_log_is_sent_loses_and_doubles_nothing(
    topics: Topics, tmp_path: Path, step: str
) -> None:
    topic = topics.create()
    folder = tmp_path / "spill"
    spilled(folder, topic)
    killed = start(topics.bootstrap, topic, folder, COUNT, 0, f"{step}:kill")
    assert killed.wait(120) == -signal.SIGKILL
    after = start(topics.bootstrap, topic, folder, COUNT, 100)
    assert after.wait(120) == 0, after.text()
    assert after.text().splitlines()[-1] == "done 0"
    assert topics.values(topic) == [b"%d" % number for number in range(COUNT + 100)]


def test_a_kill_after_the_write_into_the_log_loses_nothing(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    folder = tmp_path / "spill"
    killed = start(NOWHERE, topic, folder, 0, COUNT, "spill-written:kill")
    assert killed.wait(120) == -signal.SIGKILL
    with SyncReliableProducer("numbers", bootstrap_servers=topics.bootstrap, spill_dir=folder) as producer:
        assert producer.flush(60_000)
        sent = producer.metrics.confirmed
    # Nobody was told of these; nobody waits for the others either.
    assert sent
    assert topics.values(topic) == ALL[:sent]


def test_a_stop_says_how_many_records_wait_and_where(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        spilled(tmp_path, "orders", 7)
    assert f"numbers stopped with 7 records in {tmp_path}" in caplog.text


def test_a_full_buffer_goes_to_the_log(tmp_path: Path) -> None:
    with SyncReliableProducer(
        "numbers",
        bootstrap_servers=NOWHERE,
        spill_dir=tmp_path,
        spill_after_ms=3_600_000,
        when_full="spill",
        buffer_records=10,
        close_timeout_ms=100,
    ) as producer:
        for number in range(95):
            producer.send_soon("orders", value=b"%d" % number)
        assert producer.metrics.events == 95
        assert producer.metrics.spilled >= 80
    log = SpillLog(tmp_path, "numbers", most_bytes=1)
    assert [parcel.records[0].value for parcel in log.head(100, 1 << 20)] == ALL[:95]
    log.close()


def test_a_full_log_refuses(tmp_path: Path) -> None:
    with SyncReliableProducer(
        "numbers",
        bootstrap_servers=NOWHERE,
        spill_dir=tmp_path,
        spill_after_ms=20,
        spill_max_bytes=1,
        when_full="refuse",
        buffer_records=5,
        close_timeout_ms=100,
    ) as producer:
        producer.send("orders", value=b"spills")
        waiting = [producer.send_soon("orders", value=b"waits") for _ in range(5)]
        with pytest.raises(BufferFull):
            producer.send_soon("orders", value=b"refused")
        assert producer.metrics.unconfirmed == 6
        assert producer.metrics.spilled == 1
    # The stop is no reason to lose them: what was taken goes to the log.
    assert all(report.result(1).spilled for report in waiting)


def test_a_spilled_record_that_brokers_refuse_is_set_aside(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1, max_message_bytes="2000")
    values = [b"a", b"x" * 5_000, b"b"]
    with SyncReliableProducer(
        "numbers", bootstrap_servers=NOWHERE, spill_dir=tmp_path, spill_after_ms=20, close_timeout_ms=100
    ) as producer:
        assert all(producer.send(topic, value=value).spilled for value in values)
    with SyncReliableProducer(
        "numbers", bootstrap_servers=topics.bootstrap, spill_dir=tmp_path, compression_type="none"
    ) as producer:
        assert producer.flush(60_000)
        metrics = producer.metrics
        assert (metrics.confirmed, metrics.failed, metrics.unconfirmed, metrics.spilled) == (2, 1, 0, 0)
    assert topics.values(topic) == [b"a", b"b"]
    # The commands for such records: brokers take larger ones now, and the record is sent again.
    command = CliRunner()
    listed = command.invoke(main, ["spill", "list", str(tmp_path)]).output
    assert "numbers: 0 records wait" in listed
    assert "5,000" in listed
    assert "too large" in listed
    unknown = command.invoke(main, ["spill", "retry", str(tmp_path), "--parcel", "99"])
    assert (unknown.exit_code, "no refused parcel has the number 99" in unknown.output) == (1, True)
    topics.alter(topic, max_message_bytes="100000")
    retried = command.invoke(main, ["spill", "retry", str(tmp_path)])
    assert (retried.exit_code, retried.output) == (0, "1 record waits for brokers again\n")
    with SyncReliableProducer(
        "numbers", bootstrap_servers=topics.bootstrap, spill_dir=tmp_path, compression_type="none"
    ) as producer:
        assert producer.flush(60_000)
    assert topics.values(topic) == [b"a", b"b", values[1]]
    assert "no record is refused" in command.invoke(main, ["spill", "list", str(tmp_path)]).output


def test_refused_records_are_deleted_if_asked(tmp_path: Path) -> None:
    log = SpillLog(tmp_path, "numbers", most_bytes=1)
    for value in (b"first", b"second"):
        records = (OutputRecord("orders", None, value, 0),)
        parcel = LoggedParcel(log.take_number(), records)
        log.append([parcel])
        log.refuse(parcel.number, "too large")
    log.close()
    command = CliRunner()
    discarded = command.invoke(main, ["spill", "discard", str(tmp_path), "--parcel", "1", "--yes"])
    assert (discarded.exit_code, discarded.output) == (0, "1 record deleted\n")
    log = SpillLog(tmp_path, "numbers", most_bytes=1)
    assert [(parcel.number, parcel.reason) for parcel in log.refused()] == [(2, "too large")]
    assert log.records == 0
    log.close()


def test_the_commands_refuse_a_folder_without_a_log(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["spill", "list", str(tmp_path)])
    assert (found.exit_code, "there is no spill log" in found.output) == (1, True)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_for_one_process_and_one_name(tmp_path: Path) -> None:
    log = SpillLog(tmp_path, "numbers", most_bytes=1)
    with pytest.raises(LockError, match="spill_dir"):
        SpillLog(tmp_path, "numbers", most_bytes=1)
    log.close()
    with pytest.raises(ConfigError, match="belongs to the producer numbers"):
        SpillLog(tmp_path, "letters", most_bytes=1)


def test_numbers_grow_over_all_processes(tmp_path: Path) -> None:
    given = []
    for _ in range(3):
        log = SpillLog(tmp_path, "numbers", most_bytes=1)
        given += [log.take_number() for _ in range(5)]
        log.close()
    assert given == sorted(set(given))


def test_the_log_keeps_all_of_a_record(tmp_path: Path) -> None:
    records = (
        OutputRecord("a", b"k", None, 5, (("trace", b"1"), ("none", None)), 2),
        OutputRecord("b", None, b"", 0),
    )
    log = SpillLog(tmp_path, "numbers", most_bytes=1)
    parcel = LoggedParcel(log.take_number(), records)
    log.append([parcel])
    log.close()
    log = SpillLog(tmp_path, "numbers", most_bytes=1)
    assert log.head(1, 1) == [(parcel.number, records)]
    assert (log.records, log.bytes) == (2, sum(map(record_bytes, records)))
    assert log.remove_through(parcel.number) == 2
    assert (log.records, log.bytes, log.head(1, 1)) == (0, 0, [])
    log.close()


def test_brokers_that_are_away_at_the_start_are_waited_for(mortal: LocalKafka, tmp_path: Path) -> None:
    topics = Topics(mortal.bootstrap_servers)
    topic = topics.create()
    mortal.stop_broker(1)
    with SyncReliableProducer(
        "numbers", bootstrap_servers=mortal.bootstrap_servers, transactions=True
    ) as producer:
        report = producer.send_soon(topic, value=b"v")
        time.sleep(0.1)
        assert not report.done()
        mortal.start_broker(1)
        until(report.done, 120, lambda: producer.metrics)
        assert not report.result().spilled
    assert topics.values(topic) == [b"v"]
