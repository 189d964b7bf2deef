"""The counts of a consumer's records.

Each record that a consumer has taken is in one state: done, in work, waiting, skipped, dead or returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from streamapp._base.prometheus import Metric
from streamapp.broker.removed_records import RemovedRange

__all__ = ["Account", "ConsumerMetrics", "ConsumerStatus", "described"]


class ConsumerMetrics(NamedTuple):
    """The counts of a consumer since its start.

    ``taken == done + in_work + waiting + skipped + dead + returned`` at every moment. So the counts would show a lost
    record.

    >>> metrics = ConsumerMetrics(taken=10, done=5, in_work=1, waiting=2, skipped=1, dead=1)
    >>> metrics.taken == sum(metrics[1:7])
    True
    """

    taken: int = 0
    """Records that the consumer received for its partitions, without the records of ``already_done`` and
    ``for_others``."""
    done: int = 0
    """Records that the handler has processed."""
    in_work: int = 0
    """Records in calls of the handler that have not returned yet."""
    waiting: int = 0
    """Records in memory that wait for a call of the handler, also behind a failed record."""
    skipped: int = 0
    """Records that were dropped after an error, without a dead letter."""
    dead: int = 0
    """Records that became dead letters."""
    returned: int = 0
    """Records that the consumer gave up before they were done, for example at a rebalance, a stop or a failure.

    A record that no commit names as done is read again, by the next owner of the partition or by this consumer.
    """
    parked: int = 0
    """Waiting records that are held back until a failed record of their key (or partition) is tried again."""
    already_done: int = 0
    """Records that an earlier owner of the partition has processed, as its last commit says. The handler is not called
    for them again."""
    calls: int = 0
    """Calls of the handler that have ended."""
    call_seconds: float = 0.0
    """The sum of the durations of all calls of the handler that have ended."""
    retries: int = 0
    commits: int = 0
    outputs: int = 0
    """Records that went to Kafka in committed transactions (`KafkaOutput`), dead letters included."""
    for_others: int = 0
    """Records that were replayed for another consumer group only (``streamapp dlq replay --only-group``)."""


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """A consumer at one moment, for ``/status`` and logs."""

    name: str
    topics: tuple[str, ...]
    state: str
    """``starting``, ``running``, ``stopping``, ``stopped`` or ``failed``."""
    reason: str | None
    """The error that ended the consumer, or the partitions for whose leaders the consumer waits. None: neither."""
    partitions: tuple[str, ...]
    metrics: ConsumerMetrics
    circuit: str | None
    """The error of a service that the handler needs, while the circuit breaker is open or half-open; otherwise None.

    Meanwhile the handler gets only the records of trial calls (`CircuitBreaker`).
    """
    circuit_since: int | None
    """The time at which the circuit breaker opened, in ms since the epoch."""
    oldest_in_work: str | None
    """Topic, partition and offset of the record whose call of the handler has lasted longest."""
    oldest_seconds: float
    paused: tuple[str, ...]
    """Partitions that are not read now, because too many of their records wait."""
    transactions: bool = False
    """True with ``output=``: the outputs of the handler and the offsets are committed together in Kafka
    transactions."""
    lag: Mapping[str, int] = field(default_factory=dict)
    """The offsets from the first record that is not done to the end of the log, for each partition.

    Brokers tell the ends of the logs every 5 s. A partition whose position or end is not known yet is left out.
    """

    removed: Mapping[str, RemovedRange] = field(default_factory=dict)
    """Records that brokers had removed before the consumer could read them, for each partition."""

    def as_json(self) -> dict[str, Any]:
        """This status as values of JSON, in the form of ``/status``."""
        return asdict(self) | {"metrics": self.metrics._asdict()}


@dataclass(slots=True)
class Account:
    """The counters of one consumer. The dispatcher changes the counters under its lock."""

    taken: int = 0
    done: int = 0
    skipped: int = 0
    dead: int = 0
    returned: int = 0
    already_done: int = 0
    calls: int = 0
    call_seconds: float = 0.0
    retries: int = 0
    commits: int = 0
    outputs: int = 0
    for_others: int = 0

    def metrics(self, in_work: int, waiting: int, parked: int) -> ConsumerMetrics:
        """The counts. The dispatcher gives the three numbers that this object does not count."""
        return ConsumerMetrics(
            self.taken,
            self.done,
            in_work,
            waiting,
            self.skipped,
            self.dead,
            self.returned,
            parked,
            self.already_done,
            self.calls,
            self.call_seconds,
            self.retries,
            self.commits,
            self.outputs,
            self.for_others,
        )


_TEXTS = (
    ("taken", "counter", "Records that the consumer took."),
    ("done", "counter", "Records that the handler has processed."),
    ("in_work", "gauge", "Records in calls of the handler."),
    ("waiting", "gauge", "Records in memory that wait for the handler."),
    ("skipped", "counter", "Records that on_error skipped."),
    ("dead", "counter", "Records that became dead letters."),
    ("returned", "counter", "Records that the consumer gave up before they were done."),
    ("parked", "gauge", "Records that wait until a failed record of their key or partition is tried again."),
    (
        "already_done",
        "counter",
        "Records that an earlier owner of the partition had done; the handler is not called.",
    ),
    ("calls", "counter", "Calls of the handler."),
    ("call_seconds", "counter", "Seconds in the handler."),
    ("retries", "counter", "Records that went back for another call."),
    ("commits", "counter", "Commits."),
    ("outputs", "counter", "Records that went to Kafka in committed transactions, dead letters included."),
    ("for_others", "counter", "Records that were replayed for another consumer group only."),
)


def described(statuses: Iterable[ConsumerStatus]) -> Iterable[Metric]:
    """The status of each consumer as metrics for Prometheus: counts, circuit breaker, longest call, lag.

    The label ``consumer`` has the name of the consumer.
    """
    every = [({"consumer": status.name}, status) for status in statuses]
    for name, kind, text in _TEXTS:
        full = f"consumer_{name}_total" if kind == "counter" else f"consumer_{name}"
        yield Metric(full, kind, text, [(labels, getattr(each.metrics, name)) for labels, each in every])
    yield Metric(
        "consumer_circuit_open",
        "gauge",
        "1 while a service fails, and no record is handed out except to try the service.",
        [(labels, each.circuit is not None) for labels, each in every],
    )
    yield Metric(
        "consumer_oldest_in_work_seconds",
        "gauge",
        "The time of the longest call that is under way.",
        [(labels, each.oldest_seconds) for labels, each in every],
    )
    yield Metric(
        "consumer_lag",
        "gauge",
        "Offsets from the first record that is not done to the end of the log.",
        [(labels | _place(name), lag) for labels, each in every for name, lag in each.lag.items()],
    )
    # The series begin with 0, because `increase` of Prometheus does not see the first value of a series.
    yield Metric(
        "consumer_removed_records_total",
        "counter",
        "Offsets that were passed over, because brokers had removed their records.",
        [
            (labels | _place(name), each.removed[name].count if name in each.removed else 0)
            for labels, each in every
            for name in sorted({*each.partitions, *each.removed})
        ],
    )


def _place(partition: str) -> dict[str, str]:
    topic, _, number = partition.rpartition("-")
    return {"topic": topic, "partition": number}
