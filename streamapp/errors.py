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
    """Base of everything streamapp raises on its own account."""


class TopologyError(StreamsError):
    """The topology that is being described is not valid; raised while it is built."""


class ConfigError(StreamsError, ValueError):
    """A setting is unknown, missing or out of range."""


class MissingExtraError(StreamsError, ImportError):
    """A part of streamapp needs packages that a plain installation does not bring."""


class SerializationError(StreamsError):
    """Bytes could not be turned into a value, or a value into bytes."""


class CopartitionError(TopologyError):
    """Topics that are joined or merged by key have different numbers of partitions."""


class InvalidStoreError(StreamsError):
    """A store was asked for that does not exist, has another kind, or is not open."""


class ProcessorStateError(StreamsError):
    """The state on disk cannot be used as it is."""


class LockError(ProcessorStateError):
    """The state folder is in use by another process."""


class TaskCorruptedError(ProcessorStateError):
    """Local state and changelog contradict each other; the task's state has to be restored anew."""


class RecordTooLateError(StreamsError):
    """A suppress buffer is full and was told to shut down rather than to emit early."""


class BrokerError(StreamsError):
    """Kafka cannot be reached, or refused what was asked of it."""


class SchemaRegistryError(BrokerError):
    """The schema registry cannot be reached, or refuses a schema. No record is to blame, so no handler is asked."""


class RecordDropped(StreamsError):
    """The cause that a dead letter names for a record that an operator drops without an error
    (``dead_letter_drops``)."""


class ServiceDown(StreamsError):
    """A service that a user's function needs does not answer. The function raises this error; the record is not to
    blame."""


class UnsupportedOperation(StreamsError):
    """A runner cannot run a part of a topology; raised when the plan is built, never at record one million."""

    def __init__(self, node: str, runner: str, why: str, alternative: str) -> None:
        super().__init__(f"{node} cannot run on {runner}: {why}. {alternative}")
        self.node: str = node
        self.runner: str = runner
        self.why: str = why
        self.alternative: str = alternative
