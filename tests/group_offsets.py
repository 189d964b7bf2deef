"""Committed offsets of groups, written from outside as an operator's tool does."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

__all__ = ["commit_offsets"]

_COORDINATOR_SECONDS = 30.0


def commit_offsets(bootstrap: str, group: str, offsets: Sequence[TopicPartition]) -> None:
    """Commits offsets in the name of a group. A coordinator that still loads its offsets is waited for."""
    until = time.monotonic() + _COORDINATOR_SECONDS
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        while True:
            try:
                consumer.commit(offsets=list(offsets), asynchronous=False)
                return
            except KafkaException as exc:
                loading = exc.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS
                if not loading or time.monotonic() > until:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()
