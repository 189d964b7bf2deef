"""Consumers for applications: a function of yours, the handler, is called for each record. The records of a key, or of
a partition, keep their order. With the default guarantee, a record is committed only after its call has returned."""

from streamapp.consumer.account import ConsumerMetrics, ConsumerStatus
from streamapp.consumer.batching import Batch
from streamapp.consumer.circuit import CircuitBreaker
from streamapp.consumer.consume_options import ConsumeSettings
from streamapp.consumer.consumer_record import ConsumerRecord
from streamapp.consumer.offset_sinks import OffsetSink, PostgresOffsets, SqliteOffsets
from streamapp.consumer.outputs import KafkaOutput, OutputTransaction
from streamapp.consumer.reliable import ReliableConsumer, SyncReliableConsumer
from streamapp.consumer.verdicts import HandlerTimeout

__all__ = [
    "Batch",
    "CircuitBreaker",
    "ConsumeSettings",
    "ConsumerMetrics",
    "ConsumerRecord",
    "ConsumerStatus",
    "HandlerTimeout",
    "KafkaOutput",
    "OffsetSink",
    "OutputTransaction",
    "PostgresOffsets",
    "ReliableConsumer",
    "SqliteOffsets",
    "SyncReliableConsumer",
]
