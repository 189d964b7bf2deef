"""The account of a consumer. Each record counts once: as done, in work, waiting, skipped, dead or returned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from streamapp._base.prometheus import Metric

__all__ = ["Account", "ConsumerMetrics", "ConsumerStatus", "described"]


class ConsumerMetrics(NamedTuple):
    """``taken == done + in_work + waiting + skipped + dead + returned`` at every moment.

    >>> metrics = ConsumerMetrics(taken=10, done=5, in_work=1, waiting=2, skipped=1, dead=1)
    >>> metrics.taken == sum(metrics[1:7])
    True
    """

    taken: int = 0
    """Records that came and were not done by an earlier owner of their partition."""
    done: int = 0
    in_work: int = 0
    """Records in calls of the handler."""
    waiting: int = 0
    """Records in memory, those behind a failed record included."""
    skipped: int = 0
    dead: int = 0
    """Records that became dead letters."""
    returned: int = 0
    """Records that a rebalance, a stop or a failure left to the next owner of their partition."""
    parked: int = 0
    """Records, of those that wait, whose lane waits for another attempt."""
    already_done: int = 0
    """Records that an earlier owner had done behind a gap; the handler was not called."""
    calls: int = 0
    call_seconds: float = 0.0
    retries: int = 0
    commits: int = 0
    outputs: int = 0
    """Records of handlers that Kafka has committed."""


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """A consumer at one moment, for ``/status`` and logs."""

    name: str
    topics: tuple[str, ...]
    state: str
    """``starting``, ``running``, ``stopping``, ``stopped`` or ``failed``."""
    reason: str | None
    partitions: tuple[str, ...]
    metrics: ConsumerMetrics
    circuit: str | None
    """The error of a service, while the circuit breaker is open: no record goes to the handler. None: closed."""
    circuit_since: int | None
    oldest_in_work: str | None
    """The place of the record that is in work for longest."""
    oldest_seconds: float
    paused: tuple[str, ...]
    """Partitions that are paused because their buffer is full."""
    transactions: bool = False
    """Kafka transactions have the outputs of the handler, and the offsets."""

    def as_json(self) -> dict[str, Any]:
        """The same, as ``/status`` shows it."""
        return asdict(self) | {"metrics": self.metrics._asdict()}


@dataclass(slots=True)
class Account:
    """Counters under the dispatcher's lock."""

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

    def metrics(self, in_work: int, waiting: int, parked: int) -> ConsumerMetrics:
        """All numbers at one moment."""
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
        )


_TEXTS = (
    ("taken", "counter", "Records that the consumer took."),
    ("done", "counter", "Records whose handler has come back."),
    ("in_work", "gauge", "Records in calls of the handler."),
    ("waiting", "gauge", "Records in memory that wait for the handler."),
    ("skipped", "counter", "Records that on_error skipped."),
    ("dead", "counter", "Records that became dead letters."),
    ("returned", "counter", "Records that were left to the next owner of their partition."),
    ("parked", "gauge", "Records whose key waits for another attempt."),
    ("already_done", "counter", "Records that an earlier owner had done."),
    ("calls", "counter", "Calls of the handler."),
    ("call_seconds", "counter", "Seconds in the handler."),
    ("retries", "counter", "Attempts that failed and are made again."),
    ("commits", "counter", "Commits."),
    ("outputs", "counter", "Records of handlers that Kafka has committed."),
)


def described(statuses: Iterable[ConsumerStatus]) -> Iterable[Metric]:
    """The metrics of some consumers as Prometheus gets them."""
    every = [({"consumer": status.name}, status) for status in statuses]
    for name, kind, text in _TEXTS:
        full = f"consumer_{name}_total" if kind == "counter" else f"consumer_{name}"
        yield Metric(full, kind, text, [(labels, getattr(each.metrics, name)) for labels, each in every])
    yield Metric(
        "consumer_circuit_open",
        "gauge",
        "1 while no record is handed out because a service fails.",
        [(labels, each.circuit is not None) for labels, each in every],
    )
    yield Metric(
        "consumer_oldest_in_work_seconds",
        "gauge",
        "The time of the longest call that is under way.",
        [(labels, each.oldest_seconds) for labels, each in every],
    )
