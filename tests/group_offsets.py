"""Committed offsets of groups, written from outside as an operator's tool does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from streamapp.broker.requests import until_coordinated

__all__ = ["commit_offsets"]


def commit_offsets(bootstrap: str, group: str, offsets: Sequence[TopicPartition]) -> None:
    """Commits offsets in the name of a group. A coordinator that still loads its offsets is waited for."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        until_coordinated(lambda: consumer.commit(offsets=list(offsets), asynchronous=False), seconds=30)
