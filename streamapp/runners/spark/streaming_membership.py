"""The driver's membership in the application's consumer group.

While the driver is a member of the group, workers cannot join. The tasks of a run commit as this member. So brokers
refuse commits of an earlier run, and of tasks that have lost their driver (KIP-447).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError, ConfigError, StreamsError
from streamapp.runners.connection import client_of
from streamapp.runners.spark.handover_group import Group

__all__ = ["StreamingMembership"]

POLL_SECONDS = 0.2
JOIN_SECONDS = 60.0


class StreamingMembership:
    """The membership of one run. The constructor joins the group, and a thread keeps the membership until `leave`.

    The constructor first waits until the session of an earlier run on Spark has ended. Raises `ConfigError` if workers
    are members of the group, or if another run is still a member 10 seconds after the configured session time-out.
    Raises `BrokerError` if the group cannot be joined within 60 seconds.
    """

    def __init__(self, config: StreamsConfig, topics: Sequence[str]) -> None:
        self._name = f"{config.application_id}-spark"
        self._group = Group(config)
        self._wait_for_place(config.session_timeout_ms / 1000)
        self.lost: str | None = None
        """The reason for which the membership has ended; None while the membership lasts."""
        self._proof = b""
        self._ended = threading.Event()
        self._joined = threading.Event()
        self._consumer = Consumer(
            {
                **client_of(config),
                "group.id": config.application_id,
                "client.id": self._name,
                "enable.auto.commit": False,
                "session.timeout.ms": config.session_timeout_ms,
                "heartbeat.interval.ms": max(1, min(3_000, config.session_timeout_ms // 3)),
                # Workers have another assignor, and Kafka admits no member without a common assignor.
                "partition.assignment.strategy": "roundrobin",
            }
        )
        self._consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._thread = threading.Thread(target=self._keep, name="streamapp-membership", daemon=True)
        self._thread.start()
        if not self._joined.wait(JOIN_SECONDS):
            self.leave()
            raise BrokerError(
                f"the group {config.application_id} cannot be joined: {self.lost or 'no answer'}. "
                "Is a worker running? Stop all workers first"
            )

    def proof(self) -> bytes:
        """The proof of membership, for `Producer.send_offsets_to_transaction`.

        Raises `StreamsError` if the membership is lost.
        """
        if self.lost is not None:
            raise StreamsError(
                f"this run is no member of the group {self._group.name} any more: {self.lost}. "
                "Another run or a worker may have joined: stop all but one, then start again"
            )
        return self._proof

    def leave(self) -> None:
        """Leaves the group, so that workers can join at once."""
        self._ended.set()
        self._thread.join()

    def _wait_for_place(self, session_seconds: float) -> None:
        deadline = time.monotonic() + session_seconds + 10
        while True:
            self._group.check_empty(but=self._name)
            if not self._group.members():
                return
            if time.monotonic() > deadline:
                raise ConfigError(f"another run of {self._group.name} on Spark is alive: stop it first")
            time.sleep(0.5)

    def _keep(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(POLL_SECONDS)
            if message is not None and message.error() is not None and message.error().fatal():
                self.lost = message.error().str()
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)
        # The proof is taken in the polling thread: librdkafka lets other threads wait until no thread polls.
        self._proof = consumer.consumer_group_metadata()
        self._joined.set()

    def _on_revoke(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        if not self._ended.is_set():
            self.lost = "the group was rebalanced"
