"""streamapp: the Kafka Streams programming model for Python.

Describe a topology once with `StreamsBuilder`; run it live with `App` (Faust workers), on a cluster with `SparkRunner`,
and in tests with `TopologyTestDriver`. The results of all three are those of Kafka Streams, with few known differences
(docs/conformance.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamapp._base.extras import missing_for_spark
from streamapp._base.prometheus import metrics_text
from streamapp.config import ExceptionHandler, StreamsConfig
from streamapp.dsl import (
    BranchedKStream,
    CogroupedKStream,
    GlobalKTable,
    JoinedKStream,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    Materialized,
    SessionWindowedCogroupedKStream,
    SessionWindowedKStream,
    StreamJoined,
    StreamsBuilder,
    TimeWindowedCogroupedKStream,
    TimeWindowedKStream,
    WindowedKTable,
)
from streamapp.engine.operators.transformer import ValueTransformer
from streamapp.engine.processor import (
    Cancellable,
    FixedKeyProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    RecordMetadata,
)
from streamapp.engine.timestamps import (
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    wallclock_timestamp,
)
from streamapp.errors import (
    AuthorizationError,
    BrokerError,
    ConfigError,
    CopartitionError,
    InvalidStoreError,
    LockError,
    MissingExtraError,
    ProcessorStateError,
    RecordDropped,
    RecordTooLateError,
    SchemaRegistryError,
    SerializationError,
    ServiceDown,
    StreamsError,
    TaskCorruptedError,
    TopologyError,
    UnsupportedOperation,
)
from streamapp.on_error import Backoff, ErrorContext, OnError, Response, Retry
from streamapp.records import (
    Headers,
    OutputRecord,
    Record,
    RecordBatch,
    RecordContext,
    TopicPartition,
    Windowed,
)
from streamapp.restore_listeners import StandbyUpdateListener, StateRestoreListener
from streamapp.runners.local import TestInputTopic, TestOutputTopic, TopologyTestDriver
from streamapp.serdes import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    JsonSchemaSerde,
    JsonSerde,
    ListSerde,
    LongSerde,
    ProtobufSerde,
    Serde,
    SessionWindowedSerde,
    ShortSerde,
    StringSerde,
    TimeWindowedSerde,
    UUIDSerde,
    VoidSerde,
)
from streamapp.state.protocols import (
    KeyValueStore,
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedStore,
    ReadOnlyWindowStore,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    VersionedStore,
    WindowStore,
)
from streamapp.state.spec import StoreSpec
from streamapp.stores import Stores
from streamapp.suppressed import BufferConfig, Suppressed
from streamapp.topology import Compatibility, Need, Topology, compare_topologies
from streamapp.windows import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

if TYPE_CHECKING:
    from streamapp.app import App
    from streamapp.registry import ConfluentSchemaRegistry
    from streamapp.runners.spark import SparkRunner
    from streamapp.serdes.avro import AvroSerde

__version__ = "0.1.0"

__all__ = [
    "App",
    "AuthorizationError",
    "AvroSerde",
    "Backoff",
    "BooleanSerde",
    "BranchedKStream",
    "BrokerError",
    "BufferConfig",
    "BytesSerde",
    "Cancellable",
    "CogroupedKStream",
    "Compatibility",
    "ConfigError",
    "ConfluentSchemaRegistry",
    "CopartitionError",
    "DoubleSerde",
    "EmitStrategy",
    "ErrorContext",
    "ExceptionHandler",
    "FixedKeyProcessor",
    "FloatSerde",
    "GlobalKTable",
    "Headers",
    "IntegerSerde",
    "InvalidStoreError",
    "JoinWindows",
    "JoinedKStream",
    "JsonSchemaSerde",
    "JsonSerde",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyValueStore",
    "ListSerde",
    "LockError",
    "LongSerde",
    "Materialized",
    "MissingExtraError",
    "Need",
    "OnError",
    "OutputRecord",
    "Processor",
    "ProcessorContext",
    "ProcessorStateError",
    "ProtobufSerde",
    "PunctuationType",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyVersionedStore",
    "ReadOnlyWindowStore",
    "Record",
    "RecordBatch",
    "RecordContext",
    "RecordDropped",
    "RecordMetadata",
    "RecordTooLateError",
    "Response",
    "Retry",
    "SchemaRegistryError",
    "Serde",
    "SerializationError",
    "ServiceDown",
    "SessionStore",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindowedSerde",
    "SessionWindows",
    "ShortSerde",
    "SlidingWindows",
    "SparkRunner",
    "StandbyUpdateListener",
    "StateRestoreListener",
    "StoreSpec",
    "Stores",
    "StreamJoined",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsError",
    "StringSerde",
    "Suppressed",
    "TaskCorruptedError",
    "TestInputTopic",
    "TestOutputTopic",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindowedSerde",
    "TimeWindows",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "TopicPartition",
    "Topology",
    "TopologyError",
    "TopologyTestDriver",
    "UUIDSerde",
    "UnlimitedWindows",
    "UnsupportedOperation",
    "ValueTransformer",
    "VersionedStore",
    "VoidSerde",
    "WindowStore",
    "Windowed",
    "WindowedKTable",
    "Windows",
    "__version__",
    "compare_topologies",
    "fail_on_invalid_timestamp",
    "log_and_skip_on_invalid_timestamp",
    "metrics_text",
    "use_partition_time_on_invalid_timestamp",
    "wallclock_timestamp",
]

if not TYPE_CHECKING and missing_for_spark():
    __all__.remove("SparkRunner")  # `from streamapp import *` asks for all of them

_LAZY = {
    "App": "streamapp.app",
    "AvroSerde": "streamapp.serdes.avro",
    "ConfluentSchemaRegistry": "streamapp.registry",
    "SparkRunner": "streamapp.runners.spark",
}
"""Describing and testing a topology needs neither Faust nor Spark, so they are imported when first asked for."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'streamapp' has no attribute {name!r}")
