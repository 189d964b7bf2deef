"""The settings of a consumer, checked where they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from streamapp._base.callables import accepts, gives_coroutine
from streamapp._base.letter_cycles import MAKES_LETTERS, letters_of_letters
from streamapp._base.names import check_name, check_topic_name
from streamapp._base.whole_numbers import check_whole
from streamapp.config import StreamsConfig
from streamapp.consumer.batching import Batch
from streamapp.consumer.circuit import CircuitBreaker
from streamapp.consumer.offset_sinks import OffsetSink
from streamapp.consumer.outputs import KafkaOutput
from streamapp.errors import ConfigError, TopologyError
from streamapp.on_error import Answer, Chooser, OnError, Retry, check_on_error
from streamapp.runners.connection import client_of
from streamapp.serdes import BytesSerde, Serde
from streamapp.serdes.base import check_serde

__all__ = ["ConsumeOptions", "ConsumeSettings", "Guarantee", "Ordered"]

Ordered = Literal["key", "partition"]
"""With "key", the handler gets the records of a key one after the other; with "partition", all records of a
partition."""

Guarantee = Literal["at_least_once", "at_most_once", "exactly_once"]

_NEW_PARTITIONS_MS = 60_000
"""The longest time for which new partitions of a topic stay unnoticed. librdkafka's default is 5 minutes. Workers with
a topology have one minute, too."""
_POSITIVE = (
    "parallelism",
    "buffer_records",
    "buffer_bytes",
    "handler_timeout_ms",
    "revoke_timeout_ms",
    "close_timeout_ms",
)


class ConsumeSettings(TypedDict, total=False):
    """The settings that `App.consume`, `ReliableConsumer` and `SyncReliableConsumer` share; all are optional.

    - ``key_serde``: the serde for keys (default: ``default_key_serde`` of the configuration, else bytes).
    - ``value_serde``: the serde for values (default: ``default_value_serde`` of the configuration, else bytes).
    - ``ordered_by`` (default ``"key"``): with ``"key"``, the handler gets the records of a key one after the other, and
      several keys at the same time. With ``"partition"``, the handler gets all records of a partition one after the
      other.
    - ``parallelism`` (default 16): the largest number of calls of the handler at the same time.
    - ``batch`` (default None): with a `Batch`, the handler gets a list of records instead of one record.
    - ``on_error`` (default None): the answer to an exception of the handler, to a record that cannot be decoded, and to
      a refused record of ``output``. With None, the configuration's exception handler for each of these cases decides,
      which is ``"fail"`` unless set. With ``"at_most_once"``, the answer cannot be a `Retry`.
    - ``circuit_breaker`` (default None): the limits at which a consumer with a `Retry` takes no further record, because
      a service fails. None means ``CircuitBreaker()``.
    - ``guarantee`` (default ``"at_least_once"``): ``"at_least_once"``, ``"at_most_once"``, or ``"exactly_once"`` with
      ``output`` or ``offsets``.
    - ``offsets`` (default None): a database that saves the offsets in the transaction of the handler's work. The
      handler, which cannot be a coroutine function, gets the connection as a second argument.
    - ``output`` (default None): with a `KafkaOutput`, records that the handler sends are committed in one Kafka
      transaction with the offsets. The handler gets an `OutputTransaction` as a second argument.
    - ``buffer_records`` (default 10,000): the space for records that wait in memory, over all partitions. Each
      partition has an equal share. A partition whose share is full is not read until half of the share is free.
      Records that wait for a `Retry` do not count.
    - ``buffer_bytes`` (default 33,554,432): the space in bytes for records that wait in memory, shared like
      ``buffer_records``.
    - ``commit_interval_ms`` (default 1,000, with ``output`` 100): the time in ms between two commits.
    - ``handler_timeout_ms`` (default 300,000): the longest time in ms for one call of the handler. After this time, a
      coroutine is cancelled, and its record counts as failed. A thread cannot be cancelled, so a plain function that
      takes longer ends the consumer with `HandlerTimeout`.
    - ``revoke_timeout_ms`` (default 10,000): the longest time in ms for which a rebalance waits for calls of the
      handler. If a call takes longer, the next owner of the partition calls the handler for its records again (not
      with ``"at_most_once"``).
    - ``close_timeout_ms`` (default 30,000): the longest time in ms for which a stop waits for calls of the handler. If
      a call takes longer, the handler is called for its records again after the next start (not with
      ``"at_most_once"``).
    """

    key_serde: Serde[Any]
    value_serde: Serde[Any]
    ordered_by: Ordered
    parallelism: int
    batch: Batch
    on_error: OnError
    circuit_breaker: CircuitBreaker
    guarantee: Guarantee
    offsets: OffsetSink
    output: KafkaOutput
    buffer_records: int
    buffer_bytes: int
    commit_interval_ms: int
    handler_timeout_ms: int
    revoke_timeout_ms: int
    close_timeout_ms: int


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions:
    """All settings of a consumer; ``name`` is its consumer group. Raises `ConfigError`."""

    name: str
    topics: Sequence[str]
    handler: Callable[..., Any]
    config: StreamsConfig
    operator: str
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    ordered_by: Ordered = "key"
    parallelism: int = 16
    batch: Batch | None = None
    on_error: OnError | None = None
    circuit_breaker: CircuitBreaker | None = None
    guarantee: Guarantee = "at_least_once"
    offsets: OffsetSink | None = None
    output: KafkaOutput | None = None
    buffer_records: int = 10_000
    buffer_bytes: int = 32 << 20
    commit_interval_ms: int | None = None
    handler_timeout_ms: int = 300_000
    revoke_timeout_ms: int = 10_000
    close_timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        try:
            check_name(self.name, "the consumer's name")
            for topic in self.topics:
                check_topic_name(topic, "the topic")
        except TopologyError as exc:
            raise ConfigError(str(exc)) from None
        if not self.topics:
            raise ConfigError(f"the consumer {self.name} needs a topic")
        given = () if self.commit_interval_ms is None else ("commit_interval_ms",)
        for name in (*_POSITIVE, *given):
            check_whole(getattr(self, name), name)
        for name, kind in (("ordered_by", Ordered), ("guarantee", Guarantee)):
            if getattr(self, name) not in get_args(kind):
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(get_args(kind))}"
                )
        for name in ("key_serde", "value_serde"):
            if getattr(self, name) is not None:
                check_serde(getattr(self, name), name)
        if self.batch is not None and not isinstance(self.batch, Batch):
            raise ConfigError(f"batch is a Batch, not {self.batch!r}")
        self._check_guarantee()
        self._check_handler()
        if self.on_error is not None:
            check_on_error(self.on_error, f"consumer {self.name}")
        self._check_retry()
        self._check_letters()

    @property
    def asynchronous(self) -> bool:
        """True if the handler is a coroutine function, which runs on the event loop and not on a thread."""
        return gives_coroutine(self.handler)

    @property
    def commit_seconds(self) -> float:
        """The time between two commits."""
        default = 1_000 if self.output is None else 100
        return (self.commit_interval_ms or default) / 1000

    @property
    def retry(self) -> Retry | None:
        return self.on_error if isinstance(self.on_error, Retry) else None

    @property
    def serdes(self) -> tuple[Serde[Any], Serde[Any]]:
        return (
            self.key_serde or self.config.default_key_serde or BytesSerde(),
            self.value_serde or self.config.default_value_serde or BytesSerde(),
        )

    @property
    def processing_answer(self) -> Answer | Chooser:
        """The answer to an error of the handler after its last attempt."""
        if isinstance(self.on_error, Retry):
            return self.on_error.then
        return self.config.processing_exception_handler if self.on_error is None else self.on_error

    @property
    def undecodable_answer(self) -> Answer | Chooser:
        """The answer of ``on_error``, else of ``deserialization_exception_handler``, to bytes that cannot be decoded.

        A `Retry` gives its ``then`` at once, because another attempt gives the same error.
        """
        if self.on_error is None:
            return self.config.deserialization_exception_handler
        return self.processing_answer

    @property
    def production_answer(self) -> Answer | Chooser:
        """The answer to an output that brokers refuse, without retries."""
        if self.on_error is None:
            return self.config.production_exception_handler
        return self.processing_answer

    @property
    def makes_letters(self) -> bool:
        """True if failed records may become dead letters: in the dead-letter topic, or where a function sends them."""
        answers = self.processing_answer, self.undecodable_answer, self.production_answer
        return self.config.dead_letter_queue_topic is not None or any(map(callable, answers))

    def client(self) -> dict[str, Any]:
        """librdkafka's settings for a member of the group."""
        config, client = self.config, client_of(self.config)
        defaults: dict[str, Any] = {
            "session.timeout.ms": config.session_timeout_ms,
            "heartbeat.interval.ms": max(1, min(3_000, config.session_timeout_ms // 3)),
            "partition.assignment.strategy": "cooperative-sticky",
        }
        if client.get("group.protocol") == "consumer":
            defaults = {}  # brokers decide (KIP-848)
        if config.group_instance_id is not None:
            defaults["group.instance.id"] = config.group_instance_id
        if config.client_rack is not None:
            defaults["client.rack"] = config.client_rack
        return {
            "max.poll.interval.ms": max(config.max_poll_interval_ms, config.session_timeout_ms),
            "queued.max.messages.kbytes": 16_384,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": _NEW_PARTITIONS_MS,
            **defaults,
            **client,
            "group.id": self.name,
            # librdkafka would move the position by itself, and would not tell which records are missing.
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
        }

    @property
    def member_seconds(self) -> float:
        """The time without a poll after which the group may have removed this consumer."""
        client = self.client()
        session = client.get("session.timeout.ms", self.config.session_timeout_ms)
        return min(int(client["max.poll.interval.ms"]), int(session)) / 1000

    def _check_guarantee(self) -> None:
        if (self.guarantee == "exactly_once") != ((self.offsets is None) != (self.output is None)):
            raise ConfigError(
                "guarantee='exactly_once' goes with exactly one of output= and offsets=, and these two go with no "
                "other guarantee. Give output=KafkaOutput(...) if the handler sends records to Kafka. Give offsets=, "
                "such as PostgresOffsets(...), if the handler writes to a database"
            )
        if self.output is not None and not isinstance(self.output, KafkaOutput):
            raise ConfigError(f"output has to be a KafkaOutput, not {self.output!r}")
        if self.offsets is not None and not isinstance(self.offsets, OffsetSink):
            raise ConfigError(
                f"offsets has to be an OffsetSink, such as PostgresOffsets(...), not {self.offsets!r}"
            )
        if self.offsets is not None and self.asynchronous:
            raise ConfigError(
                "offsets=... needs a plain function as handler: the transaction runs on a thread, and the function "
                "gets the connection as its second argument"
            )

    def _check_handler(self) -> None:
        takes = 1 if self.offsets is None and self.output is None else 2
        if not accepts(self.handler, takes):
            what = "list of records" if self.batch else "record"
            second = "the transaction of its outputs" if self.output else "the database's connection"
            also = f" and {second}" if takes == 2 else ""
            raise ConfigError(
                f"the handler of {self.name} has to be a function that takes one {what}{also}, not {self.handler!r}"
            )

    def _check_retry(self) -> None:
        retry, breaker = self.retry, self.circuit_breaker
        if breaker is not None and not isinstance(breaker, CircuitBreaker):
            raise ConfigError(f"circuit_breaker is a CircuitBreaker, not {breaker!r}")
        if breaker is not None and retry is None:
            raise ConfigError(
                "circuit_breaker goes with a Retry as on_error, because only a Retry keeps the records of a service "
                "that fails. Give on_error=Retry.by_key() or Retry.in_place()"
            )
        if retry is None:
            return
        if self.guarantee == "at_most_once":
            raise ConfigError(
                'guarantee="at_most_once" calls the handler only once for each record, so on_error can be no Retry. '
                'Give "skip", "dead_letter" or "fail"'
            )
        if retry.by == "topic":
            raise ConfigError(
                "a consumer has no retry topics, so on_error can be no Retry.topics. Give Retry.by_key(backoff=...), "
                "with which records of other keys pass a failed record, or Retry.in_place()"
            )
        if retry.by == "key" and self.ordered_by == "partition":
            raise ConfigError(
                'with Retry.by_key, records of other keys pass a failed record, but ordered_by="partition" keeps the '
                'order of all records. Give Retry.in_place(), or ordered_by="key"'
            )
        if retry.key_serde is not None or retry.value_serde is not None:
            raise ConfigError(
                "the Retry of a consumer takes no serdes, because records wait as bytes. Leave key_serde and "
                "value_serde out of the Retry"
            )

    def _check_letters(self) -> None:
        letters = self.config.dead_letter_queue_topic
        if letters is not None:
            if letters in self.topics:
                self._check_cycle(letters)
            return
        answers: set[object] = {self.on_error} if isinstance(self.on_error, str) else set()
        if self.retry is not None:
            answers |= self.retry.answers
        if "dead_letter" in answers:
            raise ConfigError(
                f"{self.name} sends failed records to the dead letters, but there is no topic for them. Set "
                "dead_letter_queue_topic in the StreamsConfig, or give another answer as on_error (of a Retry: as "
                "then= and when_full=)"
            )

    def _check_cycle(self, letters: str) -> None:
        answers = {
            "on_error": self.processing_answer,
            "the answer to records that cannot be decoded": self.undecodable_answer,
            "when_full of the Retry": None if self.retry is None else self.retry.when_full,
        }
        if self.output is not None:
            answers["the answer to outputs that brokers refuse"] = self.production_answer
        for name, answer in answers.items():
            if answer in MAKES_LETTERS:
                cause = f'{name} is "{answer}"'
                raise ConfigError(letters_of_letters(f"the consumer {self.name}", letters, cause))
