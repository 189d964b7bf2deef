"""Producers for applications without a topology. With ``spill_dir``, a log on disk keeps records while brokers are
away.

An application with a database can also write records into an outbox table, in its own transactions. A relay then sends
the records to Kafka.
"""

from streamapp.producer.aio import ReliableProducer, Transaction
from streamapp.producer.blocking import SyncReliableProducer, SyncTransaction
from streamapp.producer.counts import ProducerMetrics
from streamapp.producer.databases import OutboxDatabase, PostgresOutbox, SqliteOutbox
from streamapp.producer.outbox import Outbox
from streamapp.producer.relay import OutboxRelay, RelayMetrics
from streamapp.producer.report import BufferFull, DeliveryError, DeliveryReport, UnsentRecords

__all__ = [
    "BufferFull",
    "DeliveryError",
    "DeliveryReport",
    "Outbox",
    "OutboxDatabase",
    "OutboxRelay",
    "PostgresOutbox",
    "ProducerMetrics",
    "RelayMetrics",
    "ReliableProducer",
    "SqliteOutbox",
    "SyncReliableProducer",
    "SyncTransaction",
    "Transaction",
    "UnsentRecords",
]
