"""Errors by which brokers refuse a record for good, each with its remedy."""

from __future__ import annotations

from confluent_kafka import KafkaError

from streamapp._base.counted import counted

__all__ = [
    "CONSEQUENCES",
    "FINAL",
    "OF_A_REQUEST",
    "OF_THE_BATCH",
    "OF_THE_TIME",
    "OF_THE_TOPIC",
    "REMEDIES",
    "UNKNOWN",
    "advised",
    "is_refusal",
    "refusal_text",
    "remedy_for",
]

_NO_TOPIC = "Create the topic: streamapp topic create TOPIC --partitions N"
_SMALLER = (
    "Raise max.message.bytes of the topic (and message.max.bytes in client_properties, for more than 1,000,000 bytes), "
    "or write less into a record"
)
_TIMESTAMPS = (
    "No topic takes timestamps that are further from the clock than its message.timestamp.after.max.ms (an hour) and "
    "message.timestamp.before.max.ms say. Change these settings, or give the record another timestamp: in a topology, "
    "by a timestamp_extractor of the source"
)
OF_THE_BATCH = {
    KafkaError.MSG_SIZE_TOO_LARGE: _SMALLER,
    KafkaError.RECORD_LIST_TOO_LARGE: _SMALLER,
    KafkaError.INVALID_MSG_SIZE: _SMALLER,
    KafkaError.POLICY_VIOLATION: "A policy of the brokers forbids this record",
}
"""Errors of a whole batch. They do not say which of its records is the cause, or if any record is."""
OF_THE_RECORD = {
    KafkaError.INVALID_RECORD: f"A compacted topic takes no records without a key. {_TIMESTAMPS}",
    KafkaError.INVALID_TIMESTAMP: _TIMESTAMPS,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "",
    KafkaError._UNKNOWN_PARTITION: "The topic does not have this partition. If the topic was deleted, or created anew "
    "with fewer partitions, create it with the former number",
}
OF_THE_TIME = (KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD)
"""Errors that a timestamp may have. librdkafka may report them for all records of a batch, although brokers refuse only
some of the records.

If brokers refuse several records of a batch, librdkafka reports ``INVALID_RECORD`` for these, also for their
timestamps. The others then have the error ``_INVALID_DIFFERENT_RECORD``.
"""
OF_THE_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: _NO_TOPIC,
    KafkaError._UNKNOWN_TOPIC: _NO_TOPIC,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant this client WRITE on the topic",
    KafkaError.TOPIC_EXCEPTION: "Its name is not valid, or only brokers write to it",
}
"""Errors of a topic: brokers would refuse every other record for this topic, too."""
UNKNOWN = (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
"""Errors of a topic that brokers do not know: the topic is missing, or a broker has just started."""
CONSEQUENCES = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""Errors of records that only follow from the error of another record in the same transaction."""
FINAL = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION)
"""Errors that also end Kafka Streams, without a question to its handler (``RecordCollectorImpl.isFatalException``)."""
OF_A_REQUEST = (OF_THE_BATCH.keys() | OF_THE_RECORD.keys()) - {KafkaError._UNKNOWN_PARTITION}
"""Errors that all records of a request get, though brokers may mean only one of them, or the size of the request."""
REMEDIES = OF_THE_BATCH | OF_THE_RECORD | OF_THE_TOPIC


def is_refusal(error: KafkaError) -> bool:
    """True if brokers refuse the record for good: another attempt would get the same error."""
    return error.code() in REMEDIES


def refusal_text(error: KafkaError, key: bytes | None, value: bytes | None, timestamp: int | None) -> str:
    """The error of a refused record, with the facts by which brokers judge. ``timestamp`` is in ms."""
    when = f", timestamp {timestamp}" if timestamp is not None and timestamp > 0 else ""
    size = len(key or b"") + len(value or b"")
    return f"{error.str()} (key and value: {counted(size, 'byte')}{when})"


def advised(error: KafkaError, topic: str) -> str:
    """The error of a record for the topic, with its remedy.

    >>> advised(KafkaError(KafkaError._UNKNOWN_TOPIC), "orders")
    'Local: Unknown topic. Create the topic: streamapp topic create orders --partitions N'
    """
    remedy = remedy_for(error, topic)
    return f"{error.str()}. {remedy}" if remedy else error.str()


def remedy_for(error: KafkaError, topic: str) -> str:
    """The remedy for the error of a record for the topic. Empty if none is known."""
    return REMEDIES.get(error.code(), "").replace("TOPIC", topic)
