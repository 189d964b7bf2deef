"""The transactions of a worker's agents with exactly_once_v2, with their messages and the offsets of finished records.

A transaction is open only during a commit, so that a killed worker rarely leaves an open transaction. Readers of
committed records would have to wait for the time-out of this transaction.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import KafkaError
from faust.types import TP

from streamapp._base import failpoints
from streamapp.broker.refused import REMEDIES
from streamapp.config import StreamsConfig
from streamapp.engine.collector import ResultRefused
from streamapp.engine.judging import letter_refused, record_at, send_letter
from streamapp.engine.metadata import decode_metadata
from streamapp.engine.runner_ports import Position
from streamapp.records import OutputRecord, TopicPartition
from streamapp.runners.worker.agents.sends import (
    PARTITIONS_OF_TABLE,
    BoundMessage,
    ms_of,
    pairs_of,
    refused_of,
)
from streamapp.runners.worker.clients import (
    PATIENCE_SECONDS,
    admin_client,
    brokers_answer,
    find_committed,
    list_offsets,
)
from streamapp.runners.worker.membership import Member, StaleMemberError
from streamapp.runners.worker.pace import Pace
from streamapp.runners.worker.producer import ProductionError, RecordProducer
from streamapp.runners.worker.stalls import Progress
from streamapp.runners.worker.transactions import TransactionAborted

__all__ = ["AgentTransactions"]

logger: logging.Logger = logging.getLogger(__name__)


class AgentTransactions:
    """One producer with transactions, in a thread of its own. The thread makes one call at a time."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._name = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="agents")
        self._producer: RecordProducer | None = None
        self.pace: Pace = Pace(config.transaction_timeout_ms, config.memory.uncommitted)
        self.progress: Progress = Progress()

    async def open(self) -> None:
        """Opens the producer. Raises `BrokerError` when brokers do not answer."""
        await self._in_thread(self._open)

    async def commit(
        self,
        positions: Mapping[TopicPartition, int],
        member: Member,
        messages: Iterable[BoundMessage],
        metadata: Callable[[TopicPartition, int, str], str],
    ) -> bool:
        """Commits messages and positions together. False: nothing was committed, and the caller may try again.

        ``metadata`` gives the metadata of an offset, which has to have the given note. Raises `StaleMemberError` when
        another worker has the partitions by now. Raises `BrokerError` when brokers do not answer.

        If brokers refuse a message, the call returns False, and the next call with this message raises `BrokerError`.
        If librdkafka itself refuses a message, the error comes at once. Raises `NoProgressError` when all calls of five
        minutes were rolled back.
        """
        done: bool = await self._in_thread(lambda: self._commit(positions, member, list(messages), metadata))
        return done

    async def ends(self, partitions: Collection[TopicPartition]) -> dict[TP, int]:
        """The offset after the last record of each log. Records of open transactions count."""
        found = await self._in_thread(
            lambda: list_offsets(admin_client(self._config), partitions, latest=True)
        )
        return {TP(*tp): offset for tp, offset in found.items()}

    async def close(self) -> None:
        if self._producer is not None:
            self._producer.abandon()
            await self._in_thread(self._producer.close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _open(self) -> None:
        transactional_id = f"{self._config.application_id}-agents-{self._name}"
        self._producer = RecordProducer(self._config, {}, transactional_id)
        self._producer.open()

    def _commit(
        self,
        offsets: Mapping[TopicPartition, int],
        member: Member,
        messages: list[BoundMessage],
        metadata: Callable[[TopicPartition, int, str], str],
    ) -> bool:
        producer = self._producer
        assert producer is not None
        mark = f"agents {self._name} {next(self._numbers)}"
        positions = {tp: Position(offset, metadata(tp, offset, mark)) for tp, offset in offsets.items()}
        began = time.monotonic()
        try:
            producer.begin()
            for bound in messages:
                self._send(producer, bound)
            producer.flush()
            failpoints.hit("agents-sent")
            admin = admin_client(self._config)
            producer.commit(
                positions,
                member,
                lambda: failpoints.hit("agents-offsets-sent"),
                lambda: brokers_answer(admin),
            )
            failpoints.hit("agents-committed")
            self.pace.committed(sum(bound.size for bound in messages), time.monotonic() - began)
            self.progress.made()
            return True
        except TransactionAborted as exc:
            producer.roll_back()
            # The transaction may be committed although the answer is missing. The new producer has waited until the
            # brokers have ended the transaction.
            found = find_committed(self._config, list(positions), PATIENCE_SECONDS)
            self.pace.rolled_back()
            if all(mark in decode_metadata(found[tp][1])[1] for tp in positions):
                self.progress.made()
                return True
            logger.warning("the transaction of the agents is tried again: %s", exc)
            self.progress.rolled_back(exc)
            return False
        except StaleMemberError:
            producer.roll_back()
            raise
        except BaseException:
            producer.close()
            raise

    def _send(self, producer: RecordProducer, bound: BoundMessage) -> None:
        message = bound.future.message
        topic = message.channel.get_topic_name()
        timestamp, headers = ms_of(message.timestamp), pairs_of(message.headers)
        record = OutputRecord(topic, message.key, message.value, timestamp, headers, message.partition)
        try:
            if bound.letter:
                send_letter(producer.send, record, int(time.time() * 1000))
            else:
                producer.send(*record)
        except ResultRefused as exc:
            if bound.letter:
                where = record_at(bound.record.topic, bound.record.partition, bound.offset)
                raise letter_refused(where, topic, exc, bound.letter, self._config) from exc
            story = refused_of(bound.record, bound.offset, topic)
            of_table = bound.table is not None and exc.remedy == REMEDIES[KafkaError._UNKNOWN_PARTITION]
            advice = f"; {PARTITIONS_OF_TABLE}" if of_table else f". {exc.remedy}"
            raise ProductionError(f"{story}: {exc}{advice}") from exc
