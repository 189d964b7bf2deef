"""The errors that streamapp raises. Most messages say what is wrong, and what to do about it.

Several names are those of Kafka Streams, in Python spelling: its ``StreamsException`` is `StreamsError` here.
"""

from __future__ import annotations

__all__ = [
    "AuthorizationError",
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
    """A setting or an argument is unknown, missing, of a wrong type or out of range."""


class MissingExtraError(StreamsError, ImportError):
    """A feature needs packages that are not installed. An extra, such as ``streamapp[spark]``, installs them."""


class SerializationError(StreamsError):
    """Bytes could not be turned into a value, or a value into bytes."""


class CopartitionError(TopologyError):
    """Topics whose records meet by key, for example in a join, have different numbers of partitions."""


class InvalidStoreError(StreamsError):
    """A store does not exist, is not open, or is of a kind that cannot do what is asked."""


class ProcessorStateError(StreamsError):
    """The state of a task cannot be used, for example because a file is damaged or locked, or the disk is full."""


class LockError(ProcessorStateError):
    """Another process uses the folder: the state folder of a worker, or the spill log of a producer."""


class TaskCorruptedError(ProcessorStateError):
    """A changelog has lost records that the task needs, or a topic ends before the committed position of the group.

    The message says which topic to restore, or how to begin anew.
    """


class RecordTooLateError(StreamsError):
    """The buffer of `KTable.suppress` is full, and its `BufferConfig` says ``shut_down`` instead of ``emit_early``."""


class BrokerError(StreamsError):
    """Kafka cannot be reached, or has refused a request."""

    refused: bool = False
    """True if brokers refuse a record itself, and would refuse each new attempt."""


class AuthorizationError(BrokerError):
    """Brokers refuse a request, because this client lacks a right (ACL) that the message names."""


class SchemaRegistryError(BrokerError):
    """The schema registry cannot be reached, or refuses a request. No exception handler is asked about this error,
    because the record is not its cause. So a worker ends."""


class RecordDropped(StreamsError):
    """The exception named in a dead letter whose record an operator dropped without an error, for example as late.

    Such letters exist only with the setting ``dead_letter_drops``. No function raises this exception."""


class ServiceDown(StreamsError):
    """Raised by a user's function, when a service that the function needs does not answer.

    With `Retry.by_key` or `Retry.in_place`, the record waits until the service is back. With `Retry.topics`, the record
    waits for the same delay again. With all three kinds of `Retry`, the call does not count as an attempt. (If
    ``failures=`` of the `Retry` leaves this exception out, the exception counts as an error of the record, and the call
    as an attempt.) With ``on_error="skip"`` or "dead_letter", the worker stops. Any other ``on_error`` treats the
    exception like an error of the record. A consumer (`App.consume`) without a `Retry` ends under every ``on_error``.
    """


class UnsupportedOperation(StreamsError):
    """The chosen runner cannot run an operator of the topology. Normally raised before any record is processed."""

    def __init__(self, node: str, runner: str, why: str, alternative: str) -> None:
        super().__init__(f"{node} cannot run on {runner}: {why}. {alternative}")
        self.node: str = node
        self.runner: str = runner
        self.why: str = why
        self.alternative: str = alternative
