"""Timestamp extractors: functions that give each record of a source its time (Kafka Streams' ``TimestampExtractor``).

The arguments of an extractor are the record (`ConsumedRecord`, with decoded key and value) and the partition time. The
partition time is the largest time of earlier records of the partition in ms, or -1. The result is the record's time in
ms. If the result is negative, the record is dropped and counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from streamapp.config import StreamsConfig
from streamapp.engine.queues import ConsumedRecord
from streamapp.errors import StreamsError
from streamapp.topology.nodes import SourceNode

__all__ = [
    "extractor_of",
    "fail_on_invalid_timestamp",
    "log_and_skip_on_invalid_timestamp",
    "use_partition_time_on_invalid_timestamp",
    "wallclock_timestamp",
]

log: logging.Logger = logging.getLogger(__name__)


def extractor_of(source: SourceNode, config: StreamsConfig) -> Callable[..., int] | None:
    """The extractor of a source. None: the timestamp is that of the record, and the task refuses a negative one."""
    extractor = source.timestamp_extractor or config.default_timestamp_extractor
    return None if extractor is fail_on_invalid_timestamp else extractor


def fail_on_invalid_timestamp(record: ConsumedRecord, partition_time: int) -> int:
    """The record's own timestamp. Raises `StreamsError` if the timestamp is negative, which means that there is none.

    Sources use this extractor, unless they or the configuration (``default_timestamp_extractor``) have another one. In
    the example, the record's own timestamp is 500, and the partition time 400.

    >>> fail_on_invalid_timestamp(ConsumedRecord("flights", 0, 7, 500, "N1", "late", ()), 400)
    500
    """
    if record.timestamp < 0:
        raise StreamsError(
            f"{record!r} has a negative timestamp: it was written without one, or by a producer before Kafka 0.10. "
            "Give the source another timestamp_extractor"
        )
    return record.timestamp


def log_and_skip_on_invalid_timestamp(record: ConsumedRecord, partition_time: int) -> int:
    """The record's own timestamp. For a record without a timestamp, as in the example, the extractor logs a warning and
    returns a negative number. The record is then dropped.

    >>> log_and_skip_on_invalid_timestamp(ConsumedRecord("flights", 0, 7, -1, "N1", "late", ()), 400)
    -1
    """
    if record.timestamp < 0:
        log.warning("skipping %r: it has a negative timestamp", record)
    return record.timestamp


def use_partition_time_on_invalid_timestamp(record: ConsumedRecord, partition_time: int) -> int:
    """The record's own timestamp, or, if the record has none, the largest timestamp of its partition so far.

    Raises `StreamsError` if no earlier record of the partition has a timestamp. In the example, the record has no
    timestamp, and the partition time is 400.

    >>> use_partition_time_on_invalid_timestamp(ConsumedRecord("flights", 0, 7, -1, "N1", "late", ()), 400)
    400
    """
    if record.timestamp >= 0:
        return record.timestamp
    if partition_time < 0:
        raise StreamsError(
            f"could not infer a timestamp for {record!r}: no earlier record of its partition has one. Give the source "
            "another timestamp_extractor"
        )
    return partition_time


def wallclock_timestamp(record: ConsumedRecord, partition_time: int) -> int:
    """The time of the machine when the task asks for the record's time, shortly before the record is processed.

    A second run over the same records gives other times, and so may give other results.
    """
    return int(time.time() * 1000)
