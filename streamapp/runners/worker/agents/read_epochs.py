"""The leader epochs of the records that agents get, and the check that a new leader has the records before them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from typing import Any

from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.protocol.fetch import FetchRequest

from streamapp.broker.leader_epochs import LeaderEpochs, ReadEnd
from streamapp.config import StreamsConfig
from streamapp.errors import StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.worker.kept_records import check_read_records

__all__ = ["watch_epochs"]

_BATCH = struct.Struct(">qiibIhi")
"""The head of a batch: its first offset, length, leader epoch and version. The checksum, attributes, and the distance
of the last offset follow."""
_BEFORE_LENGTH = 12
_VERSION = 2
"""The version of the format since which batches have leader epochs (Kafka 0.11)."""


def watch_epochs(
    client: Any,
    config: StreamsConfig,
    epochs: LeaderEpochs,
    reads: Callable[[TopicPartition], bool],
    refuse: Callable[[StreamsError], None],
) -> None:
    """Notes the leader epochs of the records that ``client``, a client of aiokafka, fetches of partitions that
    ``reads`` accepts.

    aiokafka knows no leader epochs. If a fetch brings a later epoch, or if the log lacks the position, an unclean
    leader election may have removed the record before. So the leader is asked first. If the leader lacks the record,
    ``refuse`` is called with the error, and the fetch never ends.
    """
    send = client.send

    async def send_and_note(node: int, request: Any, **options: Any) -> Any:
        response = await send(node, request, **options)
        if isinstance(request, FetchRequest):
            wanted = {TopicPartition(topic, row[0]): row[1] for topic, rows in request.topics for row in rows}
            before: dict[TopicPartition, ReadEnd] = {}
            found = []
            for topic, rows in response.topics:
                for number, error, _, *rest in rows:
                    tp = TopicPartition(topic, number)
                    batches = list(_batches(rest[-1] or b"")) if reads(tp) else []
                    if not batches and not (error == OffsetOutOfRangeError.errno and reads(tp)):
                        continue
                    found.append((tp, batches))
                    end = epochs.before(tp, wanted[tp])
                    if end is not None and (not batches or end.epoch < batches[0][2]):
                        before[tp] = end
            if before:
                try:
                    await asyncio.to_thread(check_read_records, config, before)
                except StreamsError as exc:
                    refuse(exc)
                    await asyncio.Event().wait()  # the stop of the worker cancels the fetch
            for tp, batches in found:
                for batch in batches:
                    epochs.note(tp, *batch)
        return response

    client.send = send_and_note


def _batches(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The first offset, the offset behind the last record, and the leader epoch of each batch in a fetch."""
    at = 0
    while at + _BATCH.size <= len(data):
        first, length, epoch, version, _, _, last = _BATCH.unpack_from(data, at)
        if version < _VERSION:
            return
        yield first, first + last + 1, epoch
        at += _BEFORE_LENGTH + length
