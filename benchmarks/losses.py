"""Four known ways to lose or double events before they are in a topic: a plain client beside ours, on a local broker.

    python -m benchmarks losses

Both clients get the same source and the same fault. The source counts the events that it has handed over. At the end,
the judge reads the committed records of the topic.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from rich.table import Table

from benchmarks.quotas import set_quota
from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.producer import SyncReliableProducer, UnsentRecords

__all__ = ["CASES", "Outcome", "losses_table", "run_case"]

Client = Literal["plain", "ours"]
_VALUE = os.urandom(500)
_BURST, _BURST_SECONDS = 1_200, 0.1


@dataclass
class Outcome:
    """The account of one run."""

    case: str
    client: Client
    sent: int
    """Events that the source handed over."""
    confirmed: int
    """Events that the client reported as written."""
    lost: int
    doubled: int
    seconds_to_recover: float | None
    """From the end of the fault to the last confirmation; None: there was none, or the fault has no end."""


@dataclass
class Stage:
    """One run of one client: its broker, its topic, and the events that the client has confirmed."""

    kafka: LocalKafka
    folder: Path
    events: int
    client: Client
    id: str = field(default_factory=lambda: f"losses-{uuid.uuid4().hex[:8]}")
    confirmed: set[int] = field(default_factory=set)
    of_the_log: int = 0
    """Events that were confirmed from the local log."""
    sent: int = 0
    last_confirmation: float = 0.0

    def confirm(self, number: int) -> None:
        self.confirmed.add(number)
        self.last_confirmation = time.monotonic()

    def plain(self, **settings: Any) -> Producer:
        """A client with librdkafka's own settings, but for those given."""
        return Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "client.id": self.id,
                "log_level": 0,
                **settings,
            }
        )

    def ours(self, **settings: Any) -> SyncReliableProducer[bytes, bytes]:
        return SyncReliableProducer(self.id, bootstrap_servers=self.kafka.bootstrap_servers, **settings)

    def send_plainly(self, producer: Producer, number: int) -> None:
        """Sends an event and ignores errors in its report, as many examples do (fire and forget)."""

        def report(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.confirm(number)

        producer.produce(self.id, value(number), key(number), on_delivery=report)

    def send(self, producer: SyncReliableProducer[bytes, bytes], number: int) -> None:
        future = producer.send_soon(self.id, key=key(number), value=value(number))
        self.sent += 1

        def report() -> None:
            if future.exception() is None and not future.result().spilled:
                self.confirm(number)

        future.add_done_callback(lambda _: report())


def slow_broker(stage: Stage) -> float | None:
    """A quota lets the brokers take 100 kB a second. Events that wait for longer than 10 s count as failed."""
    set_quota(stage.kafka, stage.id, producer_byte_rate=100_000)
    if stage.client == "plain":
        producer = stage.plain(**{"message.timeout.ms": 10_000})
        for number in range(stage.events):
            stage.send_plainly(producer, number)
            stage.sent += 1
            producer.poll(0)
        producer.flush(300)
    else:
        # The bound is far below what the quota passes in 10 s, so the source gets the pace of the brokers.
        with stage.ours(
            delivery_timeout_ms=10_000, buffer_records=200, compression_type="none", batch_size=50_000
        ) as ours:
            for number in range(stage.events):
                stage.send(ours, number)
            ours.flush()
    return None


def full_buffer(stage: Stage) -> float | None:
    """The source has bursts of 1,200 events, ten a second. The buffer has room for 1,000.

    The client collects events for 50 ms. On a busy machine, a burst may take longer than the usual 5 ms.
    """
    if stage.client == "plain":
        producer = stage.plain(**{"queue.buffering.max.messages": 1_000, "linger.ms": 50})
        for number in _bursts(stage):
            stage.sent += 1
            with suppress(BufferError):  # logged, and gone
                stage.send_plainly(producer, number)
            producer.poll(0)
        producer.flush(300)
    else:
        with stage.ours(buffer_records=1_000, linger_ms=50) as ours:
            for number in _bursts(stage):
                stage.send(ours, number)
            ours.flush()
    return None


def broker_goes(stage: Stage) -> float | None:
    """The broker is killed after a third of the events, and is back only when the source has ended."""
    if stage.client == "plain":
        producer = stage.plain()
        for number in _killing(stage):
            stage.send_plainly(producer, number)
            stage.sent += 1
            producer.poll(0)
        producer.flush(5)
        del producer
        stage.kafka.start_broker(1)
        return time.monotonic()
    spill = stage.folder / stage.id
    with stage.ours(spill_dir=spill, spill_after_ms=1_000, close_timeout_ms=5_000) as first:
        for number in _killing(stage):
            stage.send(first, number)
    stage.kafka.start_broker(1)
    back = time.monotonic()
    with stage.ours(spill_dir=spill) as following:
        following.flush()
        stage.last_confirmation = time.monotonic()
    stage.of_the_log = first.metrics.confirmed + following.metrics.confirmed - len(stage.confirmed)
    return back


def own_retries(stage: Stage) -> float | None:
    """The broker often stops for 3 s. The plain client's application repeats events without a report after 1 s."""
    pid = stage.kafka.status().brokers[0].pid
    assert pid is not None
    over = threading.Event()
    awake = [0.0]

    def pause() -> None:
        while not over.wait(2):
            os.kill(pid, signal.SIGSTOP)
            over.wait(3)
            os.kill(pid, signal.SIGCONT)
            awake[0] = time.monotonic()

    pauses = threading.Thread(target=pause)
    pauses.start()
    try:
        if stage.client == "plain":
            _retry_by_hand(stage)
        else:
            with stage.ours() as ours:
                for number in range(stage.events):
                    stage.send(ours, number)
                    time.sleep(20 / stage.events)
                ours.flush()
    finally:
        over.set()
        pauses.join()
    return awake[0]


def _retry_by_hand(stage: Stage) -> None:
    """Sends events without a report again after a second, as an application does that takes silence for a loss."""
    producer = stage.plain()
    waiting: dict[int, float] = {}

    def report(number: int, error: KafkaError | None, _: Message) -> None:
        if error is None:
            stage.confirm(number)
            waiting.pop(number, None)

    def send(number: int) -> None:
        waiting[number] = time.monotonic()
        producer.produce(stage.id, value(number), key(number), on_delivery=partial(report, number))

    def send_again() -> None:
        silent = [number for number, at in waiting.items() if time.monotonic() - at > 1]
        for number in silent:
            send(number)

    for number in range(stage.events):
        send(number)
        stage.sent += 1
        producer.poll(20 / stage.events)
        send_again()
    while waiting:
        producer.poll(0.1)
        send_again()
    producer.flush(60)


def _bursts(stage: Stage) -> Iterator[int]:
    for number in range(stage.events):
        if number % _BURST == 0:
            time.sleep(_BURST_SECONDS)
        yield number


def _killing(stage: Stage) -> Iterator[int]:
    """All events, over ten seconds; the broker is killed after a third."""
    for number in range(stage.events):
        if number == stage.events // 3:
            stage.kafka.kill_broker(1)
        time.sleep(10 / stage.events)
        yield number


CASES: dict[str, tuple[Callable[[Stage], float | None], int]] = {
    "slow broker under a quota": (slow_broker, 6_000),
    "buffer exhaustion": (full_buffer, 28_765),
    "broker goes while producing": (broker_goes, 10_000),
    "home-made retries": (own_retries, 10_000),
}
"""The cases by name, each with its function and its usual number of events."""


def run_case(
    kafka: LocalKafka, folder: Path, case: str, client: Client, events: int | None = None
) -> Outcome:
    """Runs one case with one client, and reads the topic."""
    act, usual = CASES[case]
    stage = Stage(kafka, folder, events or usual, client)
    KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)).ensure_topics(
        [TopicSpec(stage.id, 1)]
    )
    fault_ended = None
    with suppress(UnsentRecords):  # the account says so
        fault_ended = act(stage)
    found = _arrived(stage)
    recovered = None
    if fault_ended is not None and stage.last_confirmation > fault_ended:
        recovered = stage.last_confirmation - fault_ended
    return Outcome(
        case,
        client,
        sent=stage.sent,
        confirmed=len(stage.confirmed) + stage.of_the_log,
        lost=stage.sent - len(found),
        doubled=sum(found.values()) - len(found),
        seconds_to_recover=recovered,
    )


def losses_table(outcomes: list[Outcome]) -> Table:
    """One row for each case and client."""
    table = Table("case", "client", title="Events that a source handed over", title_justify="left")
    for column in ("sent", "confirmed", "lost", "doubled", "s to recover"):
        table.add_column(column, justify="right")
    for each in outcomes:
        seconds = "-" if each.seconds_to_recover is None else f"{each.seconds_to_recover:.1f}"
        numbers = (f"{number:,}" for number in (each.sent, each.confirmed, each.lost, each.doubled))
        table.add_row(each.case, each.client, *numbers, seconds)
    return table


def key(number: int) -> bytes:
    return b"%d" % (number % 100)


def value(number: int) -> bytes:
    return b"%d " % number + _VALUE


def _arrived(stage: Stage) -> Counter[int]:
    """Counts the copies of each event in the topic, as a reader of committed records sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": stage.kafka.bootstrap_servers,
            "group.id": stage.id,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(stage.id, 0, 0)])
    found: Counter[int] = Counter()
    while True:
        for message in consumer.consume(10_000, 0.5):
            error = message.error()
            if error is None:
                found[int((message.value() or b"").split(b" ", 1)[0])] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return found
