"""The question to the leaders of partitions whether their logs still have the records that the group has read."""

from __future__ import annotations

import time
from collections.abc import Mapping

from streamapp.broker.consumer import lost_at_end
from streamapp.broker.lasting_consumer import open_consumer
from streamapp.broker.leader_epochs import ReadEnd
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from streamapp.runners.first_offsets import check_kept
from streamapp.runners.worker.clients import PATIENCE_SECONDS, consumer_settings

__all__ = ["check_read_records"]

_AT_ONCE = {"queued.min.messages": 1, "fetch.message.max.bytes": 1, "fetch.wait.max.ms": 1}
"""Settings of a consumer that reads one batch of each partition, and does not wait for one."""
_MOST = 1_000
"""The records of a poll."""


def check_read_records(config: StreamsConfig, ends: Mapping[TopicPartition, ReadEnd]) -> None:
    """Raises `TaskCorruptedError` if the log of a partition has lost the record before an end that the group has read.

    Each partition needs a leader. Raises `BrokerError` after five minutes without an answer.

    librdkafka asks the leader when a new client begins to read a partition. A client that has known the leader before
    does not ask, so each call opens a client.
    """
    if not ends:
        return
    deadline = time.monotonic() + PATIENCE_SECONDS
    consumer = open_consumer(consumer_settings(config) | _AT_ONCE)
    try:
        for tp, end in ends.items():
            consumer.epochs.begin(tp, end)
        consumer.assign({tp: end.offset for tp, end in ends.items()})
        waiting = set(ends)
        while waiting:
            batches, events = consumer.poll(_MOST, 1.0)
            for tp, _, error in events:
                check_kept(config.application_id, tp, lost_at_end(error))
            answered = {*(tp for tp, _ in batches), *(event.partition for event in events)}
            consumer.remove(waiting & answered)
            waiting -= answered
            if waiting and time.monotonic() > deadline:
                listed = ", ".join(map(str, sorted(waiting)))
                raise BrokerError(f"brokers do not tell whether records at the end of {listed} are lost")
    finally:
        consumer.close()
