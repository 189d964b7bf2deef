"""The errors that streamapp raises, each saying what is wrong and what to do about it.

The names follow Kafka Streams' exceptions, in Python spelling (``StreamsException`` is `StreamsError`).
"""

from __future__ import annotations

__all__ = [
    "BrokerError",
    "ConfigError",
    "CopartitionError",
    "InvalidStoreError",
    "LockError",
    "MissingExtraError",
    "ProcessorStateError",
    "RecordDropped",
    "RecordTooLateError",
    "SchemaRegistryError",
    "SerializationError",
    "ServiceDown",
    "StreamsError",
    "TaskCorruptedError",
    "TopologyError",
    "UnsupportedOperation",
]


class StreamsError(Exception):
    """The base class of streamapp's own errors."""


class TopologyError(StreamsError):
    """The topology is not valid, or does not fit the topics. Mostly raised before any record is processed."""


class ConfigError(StreamsError, ValueError):
    """A setting is unknown, missing or out of range."""


class MissingExtraError(StreamsError, ImportError):
    """A feature needs packages of an extra, such as ``streamapp[spark]``, that is not installed."""


class SerializationError(StreamsError):
    """Bytes could not be turned into a value, or a value into bytes."""


class CopartitionError(TopologyError):
    """Topics that are joined by key, or co-grouped, have different numbers of partitions."""


class InvalidStoreError(StreamsError):
    """The requested store does not exist, is of another kind, or is not open."""


class ProcessorStateError(StreamsError):
    """The state on disk cannot be used, for example because it is damaged or locked, or because the disk is full.

    The message says what to do.
    """


class LockError(ProcessorStateError):
    """The state folder is in use by another process."""


class TaskCorruptedError(ProcessorStateError):
    """Local state and changelog contradict each other, for example because the changelog has lost records.

    The message says which state to delete, or which topic to restore.
    """


class RecordTooLateError(StreamsError):
    """The buffer of `KTable.suppress` is full, and its `BufferConfig` says ``shut_down`` instead of ``emit_early``."""


class BrokerError(StreamsError):
    """Kafka cannot be reached, or has refused a request."""

    refused: bool = False
    """True if brokers refuse a record itself, and would refuse each new attempt."""


class SchemaRegistryError(BrokerError):
    """The schema registry cannot be reached, or refuses a schema. No record is the cause, so no exception handler is
    asked."""


class RecordDropped(StreamsError):
    """The exception named in a dead letter whose record an operator dropped without an error, for example a late record
    (``dead_letter_drops``). No function raises this exception."""


class ServiceDown(StreamsError):
    """Raised by a user's function, when a service that the function needs does not answer.

    The record is not the cause. With a `Retry`, the record therefore waits until the service is back, and no attempt is
    counted.
    """


class UnsupportedOperation(StreamsError):
    """The chosen runner cannot run an operator of the topology. Normally raised before any record is processed."""

    def __init__(self, node: str, runner: str, why: str, alternative: str) -> None:
        super().__init__(f"{node} cannot run on {runner}: {why}. {alternative}")
        self.node: str = node
        self.runner: str = runner
        self.why: str = why
        self.alternative: str = alternative
