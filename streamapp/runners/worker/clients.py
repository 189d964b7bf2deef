"""The settings of a worker's librdkafka clients, and requests that a worker repeats while brokers do not answer."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from streamapp.broker.consumer import RecordConsumer, goes_away
from streamapp.broker.lasting_consumer import open_consumer
from streamapp.broker.requests import (
    SOON_SECONDS,
    FirstAnswer,
    LastingAdmin,
    broker_error,
    refusal,
    unreachable,
)
from streamapp.broker.requests import list_offsets as ask_offsets
from streamapp.broker.transacting import WRITE_ON_ID
from streamapp.config import StreamsConfig
from streamapp.errors import AuthorizationError, BrokerError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of
from streamapp.runners.worker.logs import CLIENT_LOGGER

__all__ = [
    "GRANTS",
    "PATIENCE_SECONDS",
    "admin_client",
    "await_brokers",
    "brokers_answer",
    "cannot_be_read",
    "client_id",
    "client_settings",
    "consumer_settings",
    "find_committed",
    "find_topics",
    "list_offsets",
    "pass_over",
    "producer_settings",
    "unreachable",
]

logger: logging.Logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 300.0
"""The longest time that a running worker waits for brokers that do not answer."""
_METADATA_SECONDS = 5.0
_MOST_SECONDS = 60.0
"""The longest time for one attempt of a request that is repeated."""
_MOST_EVENTS = 100
_UNKNOWN_SECONDS = 30.0
"""The longest time for which brokers may not know a topic. A new topic does not reach all brokers at once."""
_START_SECONDS = 60.0
"""The time for which a starting worker waits for a first answer of brokers: as long as Kafka's own clients wait by
default (``default.api.timeout.ms``)."""


def client_id(config: StreamsConfig, role: str | None = None) -> str:
    """The name of a client of this worker in the logs, metrics and quotas of brokers: application, worker and role.

    The worker's name is its ``group_instance_id``, or else its host and process id. ``client.id`` of the client
    properties replaces application and worker.

    >>> client_id(StreamsConfig("flights", group_instance_id="pod-3"), "producer")
    'flights-pod-3-producer'
    """
    worker = config.group_instance_id or f"{socket.gethostname()}-{os.getpid()}"
    name: str = config.client_properties.get("client.id") or f"{config.application_id}-{worker}"
    return name if role is None else f"{name}-{role}"


def client_settings(config: StreamsConfig, role: str) -> dict[str, Any]:
    return {**client_of(config), "client.id": client_id(config, role), "logger": CLIENT_LOGGER}


def consumer_settings(config: StreamsConfig, role: str = "consumer") -> dict[str, Any]:
    """The settings of a consumer in *assign* mode, which looks up the group's offsets and never joins the group.

    The consumer reads committed records only. Workers write offsets and changelog records in transactions, with either
    processing guarantee.
    """
    rack = {} if config.client_rack is None else {"client.rack": config.client_rack}
    return {
        **client_settings(config, role),
        **rack,
        "group.id": config.application_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        # By default, librdkafka stops fetching for a second when its queue is full.
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 50_000,
        "queued.max.messages.kbytes": max(1, config.memory.fetched // 1024),
    }


def producer_settings(config: StreamsConfig, transactional_id: str | None = None) -> dict[str, Any]:
    settings = {
        **client_settings(config, "producer" if transactional_id is None else "transactions"),
        "partitioner": "murmur2_random",  # the Java client's
        "enable.idempotence": True,
        # `RecordProducer.send_now` sends earlier. Behind an unanswered request, librdkafka checks records that wait for
        # longer than this in a loop without a pause. With 5 ms the loop takes a third of the CPU of benchmark W3.
        "linger.ms": 1_000,
        "batch.num.messages": 10_000,
        "queue.buffering.max.messages": 500_000,
        "delivery.report.only.error": True,
    }
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
        settings["transaction.timeout.ms"] = config.transaction_timeout_ms
        # Records time out with their transaction. The error for a missing topic has to come earlier.
        settings["topic.metadata.propagation.max.ms"] = config.transaction_timeout_ms // 2
    return settings


def admin_client(config: StreamsConfig) -> LastingAdmin:
    # Without a log: the answers to the client's requests have the same errors.
    return LastingAdmin({**client_settings(config, "admin"), "log_level": 0})


def brokers_answer(admin: LastingAdmin) -> bool:
    """True if a broker answers now."""
    try:
        admin.list_topics(timeout=_METADATA_SECONDS)
    except KafkaException:
        return False
    return True


async def await_brokers(config: StreamsConfig, admin: LastingAdmin) -> None:
    """Waits for brokers that start after the worker. Raises `BrokerError` after a minute without an answer."""
    loop = asyncio.get_running_loop()
    first = FirstAnswer(admin, client_of(config), _START_SECONDS)
    while await loop.run_in_executor(None, first.attempt) is None:
        pass


_GONE = (
    "The topic was deleted. Restore the topic; or, to begin anew, stop all workers and run `streamapp reset`"
)
_FEWER = (
    "The topic lacks this partition: an input has got more partitions than the topic, or the topic was created anew "
    "with fewer. Restart the workers, which then say what to do"
)
_ALL_RIGHTS = "`streamapp acls` lists all rights"
GRANTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant this client READ on the topics that the application reads, and WRITE "
    f"on its results, dead letters and changelogs: {_ALL_RIGHTS}",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: f"Grant this client IDEMPOTENT_WRITE on the cluster: {_ALL_RIGHTS}",
    KafkaError.GROUP_AUTHORIZATION_FAILED: f"Grant this client READ on the group: {_ALL_RIGHTS}",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: WRITE_ON_ID,
}
"""The rights of a worker's clients, by the error that brokers give without the right."""
_READ_REMEDIES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: f"Grant this client READ on the topic: {_ALL_RIGHTS}",
    KafkaError.UNKNOWN_TOPIC_OR_PART: _GONE,
    KafkaError._UNKNOWN_TOPIC: _GONE,
    KafkaError._UNKNOWN_PARTITION: _FEWER,
}


def pass_over(error: KafkaError, tp: TopicPartition, what: str = "the input") -> None:
    """Logs an error of a consumer that goes away by itself. Raises `BrokerError` for any other error."""
    if goes_away(error):
        CLIENT_LOGGER.warning("%s: %s", tp, error.str())
        return
    if not tp.topic:  # an error of the client itself, which has logged the cause
        raise BrokerError(
            f"the answers of brokers cannot be read: {error.str()}. The log lines above may say more"
        )
    raise cannot_be_read(f"{what} {tp}", error)


def cannot_be_read(what: str, error: KafkaError) -> BrokerError:
    """The error for records that brokers do not give to this client, with its remedy."""
    remedy = _READ_REMEDIES.get(error.code(), "The logs of the brokers may say more")
    return BrokerError(f"{what} cannot be read: {error.str()}. {remedy}")


def find_topics(config: StreamsConfig, admin: LastingAdmin, seconds: float) -> Any:
    """The metadata of all topics. Raises `BrokerError` after ``seconds`` without an answer."""
    deadline = time.monotonic() + seconds
    patience = _METADATA_SECONDS
    while True:
        try:
            return admin.list_topics(timeout=min(seconds, patience))
        except KafkaException as exc:
            if time.monotonic() > deadline:
                raise unreachable(client_of(config), exc.args[0]) from exc
        patience *= 2  # slow brokers may need more than the first time for the connections of the next client


def find_committed(
    config: StreamsConfig,
    partitions: Collection[TopicPartition],
    seconds: float,
    known: RecordConsumer | None = None,
    *,
    stable: bool = True,
) -> dict[TopicPartition, tuple[int, str]]:
    """The group's committed offsets (negative: no offset) and their metadata.

    If ``stable``, and a transaction is about to commit offsets, the answer waits for the end of the transaction.

    The request is repeated after an error, for example while the group has no coordinator. Raises `BrokerError` after
    ``seconds``, and `AuthorizationError` at once if a right is missing.

    The consumer ``known`` makes the first request. Without ``known``, and after a time-out, a new consumer asks. An
    admin client never asks, because it may crash the process (`read_committed_offsets`).
    """
    if not partitions:
        return {}
    deadline = time.monotonic() + seconds
    patience = SOON_SECONDS
    level = {"isolation.level": "read_committed" if stable else "read_uncommitted"}
    while True:
        asked = known or open_consumer(consumer_settings(config) | level)
        try:
            return asked.committed(partitions, timeout=min(seconds, patience))
        except KafkaException as exc:
            error: KafkaError = exc.args[0]
            if asked is not known:
                # librdkafka lets the request wait for ever without the right to the group, and only polls tell why.
                error = refusal(event.error for event in asked.poll(_MOST_EVENTS, 0.0)[1]) or error
            text = f"the committed offsets of {config.application_id} are not known: {error.str()}"
            refused = broker_error(text, error, GRANTS)
            if isinstance(refused, AuthorizationError):
                raise refused from exc
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"{text}. Check that all brokers run, and that no transaction hangs "
                    f"(streamapp doctor --group {config.application_id})"
                ) from exc
        finally:
            if asked is not known:
                asked.close()
        # A consumer of librdkafka may wait for the coordinator's answer for ever. A new consumer asks next. The new one
        # has more time, because slow brokers may need the first time for connections alone.
        if error.code() == KafkaError._TIMED_OUT:
            known = None
            patience = min(2 * patience, _MOST_SECONDS)
        time.sleep(0.1)


def list_offsets(
    admin: LastingAdmin,
    partitions: Iterable[TopicPartition],
    *,
    latest: bool,
    stable: bool = False,
    timeout: float = PATIENCE_SECONDS,
    may_go: Callable[[str], bool] = lambda topic: False,
    leaderless: set[TopicPartition] | None = None,
) -> dict[TopicPartition, int]:
    """The first offset of each log, or with ``latest`` its end.

    Transaction markers count, and so do records of open transactions, unless ``stable`` is true. Raises `BrokerError`
    after ``timeout`` seconds, for an unknown topic after at most 30 s, and at once for lasting errors. If an unknown
    topic ``may_go``, the result lacks its partitions instead. With a set ``leaderless``, partitions without a leader
    are put into this set, and the result lacks them.
    """
    spec = OffsetSpec.latest() if latest else OffsetSpec.earliest()
    return _ask_offsets(admin, partitions, spec, timeout, stable, may_go, leaderless)


def offset_at(admin: LastingAdmin, tp: TopicPartition, timestamp: int) -> int:
    """The first offset of a record that is not older than ``timestamp`` (ms); negative: there is no such record.

    Raises the errors of `list_offsets`.
    """
    return _ask_offsets(admin, [tp], OffsetSpec.for_timestamp(timestamp), PATIENCE_SECONDS)[tp]


def _ask_offsets(
    admin: LastingAdmin,
    partitions: Iterable[TopicPartition],
    spec: OffsetSpec,
    timeout: float,
    stable: bool = False,
    may_go: Callable[[str], bool] = lambda topic: False,
    leaderless: set[TopicPartition] | None = None,
) -> dict[TopicPartition, int]:
    return ask_offsets(
        admin,
        partitions,
        spec,
        read_committed=stable,
        seconds=timeout,
        unknown_seconds=_UNKNOWN_SECONDS,
        may_go=may_go,
        leaderless=leaderless,
        remedies=_READ_REMEDIES,
    )
