"""The consumer group of an application, as a backfill uses it: its committed offsets and its members.

While a backfill writes, the group's offsets stay the same, and their metadata describes the backfill (`Progress`). A
killed backfill can continue from this metadata alone. The metadata is also a lock: a worker that starts cannot read it,
and stops with an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.errors import for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from streamapp._base.counted import counted
from streamapp.broker.consumer_groups import read_committed_offsets
from streamapp.broker.requests import CHECK_KAFKA, ask, until_coordinated
from streamapp.config import StreamsConfig
from streamapp.engine.metadata import BACKFILL, METADATA_LIMIT
from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError, ConfigError, StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of, settings_of

__all__ = ["Group", "Progress"]

R = TypeVar("R")

TIMEOUT_SECONDS = 30.0
"""The time limit of one request."""
PATIENCE_SECONDS = 120.0
"""The time limit of the retries while the group has no coordinator."""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of an input while a backfill writes."""

    job: str
    """`Survey.job` of the backfill."""
    cut: int
    """The offset at which workers will begin."""
    now_ms: int
    """The wall clock that operators see, also when the backfill is repeated."""
    was: str = ""
    """The metadata before the backfill."""
    global_ends: dict[str, list[int]] = {}
    """A part of `Survey.global_ends`. All notes of the group, in the order of their inputs, have all ends."""

    # Only the first input of a task has the following fields:
    logs: dict[str, int] = {}
    """Store -> the end offset of its changelog before the backfill, for changelogs with records."""
    rows: int = 0
    """The number of rows that the backfill has written for the task."""
    checksum: int = 0
    """The CRC-32 of these rows."""

    def to_metadata(self) -> str:
        text = BACKFILL + msgspec.json.encode(self).decode()
        if len(text) > METADATA_LIMIT:
            raise StreamsError(
                f"the group's metadata would be {counted(len(text), 'byte')} long, and the limit is 4,000: one "
                "sub-topology of the application has too many operators. Put repartition() between some of them"
            )
        return text

    @property
    def room(self) -> int:
        """The bytes that are free in the metadata, also after all rows are written.

        Raises `StreamsError` if there are none.
        """
        last = msgspec.structs.replace(self, rows=10**15, checksum=2**32 - 1)
        return METADATA_LIMIT - len(last.to_metadata())

    @staticmethod
    def of(metadata: str) -> Progress | None:
        """The progress in an input's metadata; None if no backfill is under way."""
        if not metadata.startswith(BACKFILL):
            return None
        return msgspec.json.decode(metadata[len(BACKFILL) :], type=Progress)


class Group:
    """The consumer group whose id is ``config.application_id``.

    Every method waits for Kafka's answer, and raises `BrokerError` if no answer comes, or if Kafka refuses the request.
    If Kafka refuses a `commit` because the group has members, the error is a `ConfigError` instead."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self.name: str = config.application_id

    def members(self) -> list[Any]:
        """The members of the group, each with ``client_id`` and ``host``."""
        admin = AdminClient({**client_of(self._config), "log_level": 0})

        def look() -> list[Any]:
            found = ask(admin.describe_consumer_groups, [self.name], seconds=TIMEOUT_SECONDS)
            return list(found[self.name].result().members)

        return self._patiently("the members", look)

    def check_empty(self, but: str | None = None) -> None:
        """Raises `ConfigError` if the group has members, except clients with the id ``but``."""
        members = [member for member in self.members() if member.client_id != but]
        if members:
            named = ", ".join(sorted({f"{member.client_id} at {member.host}" for member in members}))
            raise ConfigError(
                f"the group {self.name} has {counted(len(members), 'running member')} ({named}). Stop all "
                f"workers, and wait {self._config.session_timeout_ms / 1000:g} s for killed ones; then run this again"
            )

    def read_settled(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """Waits until no open transaction can still commit offsets of these partitions (KIP-447), and then reads them.

        Kafka confirms a transaction before the group has its offsets, so `read` alone could miss offsets just
        committed.
        """
        read_committed_offsets(client_of(self._config), self.name, partitions, seconds=PATIENCE_SECONDS)
        return self.read(partitions)

    def read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """The committed offsets, with their metadata, of the partitions that have any."""
        # aiokafka reads here, because librdkafka adds bytes from the memory behind the metadata. librdkafka also writes
        # a NUL at the end of metadata, which `_read` takes off.
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                found = _run(self._read(partitions))
                break
            except AioKafkaError as error:
                if not error.retriable or time.monotonic() > deadline:
                    raise self._refused("the committed offsets", str(error)) from error
            time.sleep(0.1)
        return {tp: committed for tp, committed in found.items() if committed.offset >= 0}

    async def _read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        # aiokafka's admin client would take the error of a coordinator that loads the group for no offsets.
        asked: dict[str, list[int]] = {}
        for tp in partitions:
            asked.setdefault(tp.topic, []).append(tp.partition)
        client = AIOKafkaClient(
            **settings_of(self._config).aiokafka(), request_timeout_ms=int(TIMEOUT_SECONDS * 1000)
        )
        try:
            await client.bootstrap()
            place = await client.send(client.get_random_node(), FindCoordinatorRequest(self.name, 0))
            _check(place.error_code)
            request = OffsetFetchRequest(self.name, list(asked.items()))
            answer = await client.send(place.coordinator_id, request)
        finally:
            await client.close()
        _check(answer.error_code)
        found = {}
        for topic, entries in answer.topics:
            for number, offset, metadata, error in entries:
                _check(error)
                found[TopicPartition(topic, number)] = Position(offset, (metadata or "").partition("\0")[0])
        return found

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Commits all positions or none. Raises `ConfigError` if the group has members, because only members may then
        commit."""
        entries = [KafkaPartition(*tp, c.offset, metadata=c.metadata) for tp, c in positions.items()]
        consumer = Consumer({**client_of(self._config), "group.id": self.name, "enable.auto.commit": False})

        def send() -> None:
            failed = [e.error for e in consumer.commit(offsets=entries, asynchronous=False) if e.error]
            if failed:
                raise KafkaException(failed[0])

        try:
            self._patiently("the offsets", send)
        except BrokerError:
            self.check_empty()
            raise
        finally:
            consumer.close()

    def _patiently(self, what: str, call: Callable[[], R]) -> R:
        try:
            return until_coordinated(call, seconds=PATIENCE_SECONDS)
        except KafkaException as error:
            raise self._refused(what, error.args[0].str()) from error

    def _refused(self, what: str, why: str) -> BrokerError:
        return BrokerError(
            f"Kafka at {self._config.bootstrap_servers}: the request about {what} of the group {self.name} failed: "
            f"{why}. {CHECK_KAFKA}"
        )


def _run(call: Coroutine[Any, Any, R]) -> R:
    """The result of a coroutine. In a notebook, an event loop runs in this thread, so another thread runs the call."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, call).result()


def _check(code: int) -> None:
    """Raises aiokafka's error for the error code of an answer."""
    if code:
        raise for_code(code)
