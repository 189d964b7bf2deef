"""`OutputCommits`: Kafka transactions with the outputs of handlers and the offsets of a member of the group."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp._base.failpoints import hit
from streamapp.broker.consumer import READ_RIGHTS, committed_metadata
from streamapp.broker.requests import committed
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.done_offsets import decode_done
from streamapp.consumer.outputs import HandlerOutputs, Step
from streamapp.consumer.refused_outputs import RefusedOutputs
from streamapp.errors import BrokerError
from streamapp.producer.session import RecordsRefused, TransactionSession, UnknownTopics, Unsettled
from streamapp.records import TopicPartition

__all__ = ["OutputCommits"]

logger: logging.Logger = logging.getLogger(__name__)

_FINAL = {
    **READ_RIGHTS,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Grant this client WRITE on the transactional ids that begin "
    "with the name of the consumer (streamapp acls)",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "Make transaction_timeout_ms smaller than transaction.max.timeout.ms of "
    "the brokers",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "Raise offset.metadata.max.bytes of the brokers to 4096, their default",
}
"""Errors that would come again at every attempt, each with its remedy. Such an error ends the consumer."""


class OutputCommits:
    """The Kafka transactions of one consumer, one at a time. Only the thread that polls calls this object.

    If a connection breaks during a commit, nobody knows if the transaction is committed. `settle` finds out before the
    next transaction begins. A new client of the same name ends the transaction, if it is still open, and then reads the
    committed positions.
    """

    def __init__(
        self,
        options: ConsumeOptions,
        outputs: HandlerOutputs,
        dispatcher: Dispatcher,
        client: Callable[[], Consumer],
    ) -> None:
        self._options, self._outputs, self._dispatcher = options, outputs, dispatcher
        self._client = client
        # A static member has the same name after a restart, so its first session at once ends a transaction that was
        # left open.
        self._name = f"{options.name}-{options.config.group_instance_id or uuid.uuid4().hex[:12]}"
        self._seconds = options.config.transaction_timeout_ms / 1000
        self._unknown = UnknownTopics()
        self._refused = RefusedOutputs(options, dispatcher)
        self._session: TransactionSession | None = None
        self._unsettled: Step | None = None

    def commit(self, sources: Collection[TopicPartition] | None = None) -> bool:
        """Commits new positions together with the outputs.

        Returns False if the commit fails. The next call tries again, unless the error has ended the consumer.
        """
        if not self.settle():
            return False
        step = self._dispatcher.step(sources)
        if not step.positions:
            if self._session is not None:
                self._session.idle()
            return True
        if self._session is not None and self._session.outdated():
            self._give_session_up()
        try:
            session = self._session = self._session or self._open()
            return self._commit(session, step)
        except RecordsRefused as exc:
            self._session = None
            self._refused.judge(step, exc)
        except BrokerError as exc:
            self._not_committed(exc)
        return False

    def _commit(self, session: TransactionSession, step: Step) -> bool:
        # By the member id and the generation, brokers refuse the offsets of a member that the group has removed.
        # Without a member id, brokers would accept offsets if the group is empty.
        client = self._client()
        member = client.consumer_group_metadata()
        if not client.memberid():
            logger.info("%s: not committed: the group has given this member up", self._options.name)
            return False
        positions = [KafkaPartition(*source, *position) for source, position in step.positions.items()]
        try:
            session.commit([output.record for output in step.outputs], positions, member, self._seconds)
        except Unsettled:
            self._session, self._unsettled = None, step
            raise
        hit("consumer-committed")
        self._dispatcher.step_committed(step)
        if self._refused.committed():
            self._give_session_up()
        return True

    def settle(self) -> bool:
        """Asks brokers whether the last transaction was committed, unless the answer is already known.

        Returns True if the answer is known, and False while brokers do not answer.

        The method compares the committed positions with those of the transaction, for the partitions that this member
        still owns. In other partitions, a new owner may have committed later positions.
        """
        step = self._unsettled
        if step is None:
            return True
        try:
            self._session = self._session or self._open()
            owned = [source for source in step.positions if self._dispatcher.owns(step.partitions[source])]
            if owned and self._stand_at(step, owned):
                self._dispatcher.step_committed(step)
        except (BrokerError, KafkaException) as exc:
            self._not_committed(exc)
            return False
        self._unsettled = None
        return True

    def _stand_at(self, step: Step, owned: Iterable[TopicPartition]) -> bool:
        """True if the committed positions of these partitions are those of the step. The transaction of the step is
        then committed."""
        found = committed(self._client(), owned, seconds=self._seconds)
        return all(
            each.offset == step.positions[TopicPartition(each.topic, each.partition)][0]
            and decode_done(each.offset, committed_metadata(each))
            == decode_done(*step.positions[TopicPartition(each.topic, each.partition)])
            for each in found
        )

    def _open(self) -> TransactionSession:
        return TransactionSession(
            self._name,
            {**self._outputs.settings, **self._refused.settings},
            seconds=self._seconds,
            transaction_timeout_ms=self._options.config.transaction_timeout_ms,
            unknown=self._unknown,
        )

    def _not_committed(self, error: Exception) -> None:
        cause = error if isinstance(error, KafkaException) else error.__cause__
        code = cause.args[0].code() if isinstance(cause, KafkaException) else None
        if code in _FINAL:
            self._dispatcher.fail(BrokerError(f"{self._options.name} cannot commit: {error}. {_FINAL[code]}"))
        else:
            logger.warning("%s: not committed yet: %s", self._options.name, error)

    def close(self) -> None:
        """Closes the client. A transaction that is still open is aborted, and the next owner calls the handler for its
        records again."""
        self._give_session_up()

    def _give_session_up(self) -> None:
        if self._session is not None:
            self._session.abandon()
            self._session = None
