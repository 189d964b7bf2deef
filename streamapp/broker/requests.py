"""How Kafka is asked: admin requests without a time-out of their own, offsets until partitions have a leader, and groups until
they have a coordinator."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import OFFSET_END, Consumer, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from streamapp.broker.certificates import CertificateFiles
from streamapp.broker.librdkafka import opening
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition

__all__ = [
    "NO_TIMEOUT",
    "REQUEST_SECONDS",
    "LastingAdmin",
    "ask",
    "committed",
    "describe_brokers",
    "list_offsets",
    "until_coordinated",
]

S = TypeVar("S")
T = TypeVar("T")

NO_TIMEOUT = 3_600.0
"""The ``request_timeout`` of every request of an admin client, in seconds: librdkafka 2.x ends the process (an assertion, or
a segmentation fault) when one runs out while it looks for a broker or coordinator. So a request may take as long as
it likes, and whoever wants its answer stops waiting."""

_SILENCE_SECONDS = 9.0
REQUEST_SECONDS = 10.0
"""After so long a request is made again, which a new client does (`LastingAdmin`)."""

_PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError._NOENT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)
"""What a partition answers when a broker has gone, or while it is on its way to another."""

_UNCOORDINATED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
)
"""What a group answers on a cluster that has just begun to keep groups, or while it moves to another broker, or
while a transaction with its offsets ends."""


class LastingAdmin:
    """An admin client that is opened anew for the request that follows on one without answer.

    librdkafka may have forgotten all brokers while one of them stood still, and then looks for none again
    (librdkafka#5301). It has the requests of `AdminClient`; those that the old client had not answered never are. Safe to use
    from several threads.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        refusals = self._refusals = deque[KafkaError](maxlen=1)
        """The brokers' objection to this client, as long as no broker lets the client in."""

        def note(error: KafkaError) -> None:  # no method: the client would keep this object alive
            if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
                refusals.append(error)

        self._settings = {"error_cb": note, **settings}
        with opening(self._settings):
            self._client = AdminClient(self._settings)
        self._files = CertificateFiles(settings)
        self._asked: list[tuple[float, Collection[Future[Any]]]] = []
        self._lock = threading.Lock()

    def list_topics(self, topic: str | None = None, timeout: float = -1.0) -> Any:
        with self._lock:
            self._follow_files()
            client = self._client
        try:
            found = client.list_topics(topic, timeout)
        except KafkaException as exc:
            client.poll(0)  # the call has timed out; why, only the callback is told
            with self._lock:
                if client is self._client:
                    self._reopen()
            raise next(map(KafkaException, [*self._refusals]), exc) from None
        self._refusals.clear()
        return found

    def __getattr__(self, name: str) -> Callable[..., Mapping[Any, Future[Any]]]:
        if name.startswith("_"):
            raise AttributeError(name)

        def request(*what: Any, **options: Any) -> Mapping[Any, Future[Any]]:
            with self._lock:
                self._follow_files()
                self._asked = [
                    (at, futures)
                    for at, futures in self._asked
                    if not all(future.done() for future in futures)
                ]
                if self._asked and time.monotonic() - self._asked[0][0] > _SILENCE_SECONDS:
                    self._reopen()
                asked: Mapping[Any, Future[Any]] = getattr(self._client, name)(*what, **options)
                self._asked.append((time.monotonic(), asked.values()))
            return asked

        return request

    def _follow_files(self) -> None:
        if self._files.changed():
            self._reopen()

    def _reopen(self) -> None:
        self._client = AdminClient(self._settings)
        self._asked = []


def ask(
    request: Callable[..., Mapping[S, Future[T]]], what: Any, /, *, seconds: float, **options: Any
) -> dict[S, Future[T]]:
    """Makes one request of an admin client and waits at most ``seconds`` for all of its answers.

    The futures are done: ``result()`` returns at once, or raises `KafkaException`, whose code is ``_TIMED_OUT`` where
    no answer has come.

        (described,) = ask(admin.describe_consumer_groups, ["flights"], seconds=10).values()
        members = described.result().members
    """
    asked = request(what, request_timeout=NO_TIMEOUT, **options)
    wait(asked.values(), max(0.0, seconds))
    return {subject: future if future.done() else _unanswered() for subject, future in asked.items()}


def describe_brokers(
    admin: LastingAdmin, brokers: Iterable[int], *, seconds: float
) -> dict[int, Future[Mapping[str, Any]]]:
    """The settings of each broker, as `ask` gives answers. librdkafka refuses a request about several brokers."""
    found = {}
    for id in brokers:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(id))
        ((_, found[id]),) = ask(admin.describe_configs, [resource], seconds=seconds).items()
    return found


def _unanswered() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    return future


def list_offsets(
    admin: LastingAdmin,
    partitions: Iterable[TopicPartition],
    spec: OffsetSpec,
    *,
    read_committed: bool = False,
    seconds: float,
    unknown_seconds: float = 0.0,
) -> dict[TopicPartition, int]:
    """Offsets in the logs of many partitions, in one request to each broker: the first, the one after the last, or the first at a
    time (negative: there is none).

    Open transactions count as part of a log, unless with ``read_committed``. As long as brokers do not answer, and partitions have
    no leader, they are asked again. Raises `BrokerError` after ``seconds``; for a topic that does not exist after ``unknown_seconds``,
    since not every broker may have heard of one that was just created.

        ends = list_offsets(admin, [TopicPartition("flights", 0)], OffsetSpec.latest(), seconds=30)
    """
    level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    by_time = spec not in (OffsetSpec.earliest(), OffsetSpec.latest())
    wanted = {KafkaPartition(*tp): spec for tp in partitions}
    found: dict[TopicPartition, int] = {}
    began = time.monotonic()
    while wanted:
        asked = ask(admin.list_offsets, wanted, seconds=min(seconds, REQUEST_SECONDS), isolation_level=level)
        wanted = {}
        for tp, future in asked.items():
            try:
                offset = future.result().offset
                # So a partition whose leader has gone comes back, without an error.
                if offset < 0 and not (by_time and offset == OFFSET_END):
                    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
                found[TopicPartition(tp.topic, tp.partition)] = offset
            except KafkaException as exc:
                error: KafkaError = exc.args[0]
                unknown = error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                limit = min(seconds, unknown_seconds) if unknown else seconds
                if error.code() not in _PASSING or time.monotonic() - began > limit:
                    raise BrokerError(
                        f"the offsets of {tp.topic}-{tp.partition} are not known: {error.str()}"
                    ) from exc
                wanted[tp] = spec
        if wanted:
            time.sleep(0.1)
            # librdkafka goes on asking with the leader epoch it knows, which a restarted broker refuses for ever.
            with suppress(KafkaException):
                admin.list_topics(timeout=min(seconds, REQUEST_SECONDS))
    return found


def until_coordinated(call: Callable[[], T], *, seconds: float) -> T:
    """What ``call`` gives, which is repeated while a group has no coordinator.

    Raises `KafkaException` for any other refusal at once, and for that one after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].code() not in _UNCOORDINATED or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def committed(
    consumer: Consumer, partitions: Iterable[TopicPartition], *, seconds: float
) -> list[KafkaPartition]:
    """What the consumer's group has committed; a negative offset: nothing. Raises `KafkaException`.

    librdkafka puts what a single partition answers beside its offset, where it is easily taken for "nothing".
    """
    asked = [KafkaPartition(*tp) for tp in partitions]

    def look() -> list[KafkaPartition]:
        found: list[KafkaPartition] = consumer.committed(asked, timeout=seconds)
        for entry in found:
            if entry.error is not None:
                raise KafkaException(entry.error)
        return found

    return until_coordinated(look, seconds=seconds)
