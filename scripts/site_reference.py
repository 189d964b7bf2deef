"""The pages of the reference: each public name once. mkdocstrings fills in the signatures and the docstrings."""

from __future__ import annotations

import importlib
import re

import streamapp

MODULES = (
    "config",
    "consumer",
    "expressions",
    "on_error",
    "producer",
    "query",
    "records",
    "restore_listeners",
    "runners.spark",
    "serdes",
    "testing",
)
"""The public modules (docs/house.md) with names that `streamapp` itself does not have."""

PARTS = {
    "Application and settings": "App StreamsConfig StateRestoreListener StandbyUpdateListener"
    " restore_listeners.SuspendReason config.MemoryShares config.OffsetReset config.ProcessorWrapper"
    " config.check_config __version__",
    "StreamsBuilder and Topology": "StreamsBuilder Topology compare_topologies Compatibility Need",
    "KStream": "KStream BranchedKStream JoinedKStream StreamJoined JoinWindows",
    "KTable": "KTable WindowedKTable GlobalKTable",
    "Grouping and aggregation": "KGroupedStream KGroupedTable CogroupedKStream TimeWindowedKStream"
    " SessionWindowedKStream TimeWindowedCogroupedKStream SessionWindowedCogroupedKStream Materialized",
    "Windows and suppression": "TimeWindows SlidingWindows SessionWindows UnlimitedWindows Windows EmitStrategy"
    " Suppressed"
    " BufferConfig",
    "Stores": "Stores StoreSpec KeyValueStore TimestampedKeyValueStore WindowStore TimestampedWindowStore SessionStore"
    " VersionedStore ReadOnlyKeyValueStore ReadOnlyWindowStore ReadOnlySessionStore ReadOnlyVersionedStore",
    "Processors": "Processor FixedKeyProcessor ProcessorContext RecordMetadata PunctuationType Cancellable"
    " ValueTransformer",
    "Records and timestamps": "Record RecordContext OutputRecord RecordBatch Headers TopicPartition Windowed"
    " fail_on_invalid_timestamp log_and_skip_on_invalid_timestamp use_partition_time_on_invalid_timestamp"
    " wallclock_timestamp records.NO_HEADERS records.RecordSource records.batch_bytes records.create_time",
    "Serdes and schema registry": "Serde AvroSerde BooleanSerde BytesSerde DoubleSerde FloatSerde IntegerSerde"
    " JsonSchemaSerde JsonSerde ListSerde LongSerde ProtobufSerde ShortSerde StringSerde UUIDSerde VoidSerde"
    " serdes.FieldNumber TimeWindowedSerde SessionWindowedSerde ConfluentSchemaRegistry serdes.SchemaRegistry"
    " serdes.LocalSchemaRegistry"
    " serdes.SchemaVersion serdes.SchemaReference serdes.SchemaGuids",
    "Failures and errors": "OnError Retry Backoff Response ErrorContext ExceptionHandler on_error.ANSWERS"
    " on_error.DROPS"
    " on_error.FAILURES on_error.Answer on_error.Chooser on_error.check_on_error StreamsError BrokerError"
    " AuthorizationError ConfigError"
    " CopartitionError InvalidStoreError LockError MissingExtraError ProcessorStateError RecordDropped"
    " RecordTooLateError"
    " SchemaRegistryError SerializationError ServiceDown TaskCorruptedError TopologyError UnsupportedOperation",
    "Interactive queries": "query.execute query.Query query.QueryResult query.KeyQuery query.RangeQuery"
    " query.TimestampedKeyQuery query.TimestampedRangeQuery query.VersionedKeyQuery query.MultiVersionedKeyQuery"
    " query.WindowKeyQuery query.WindowRangeQuery",
    "Producing": "producer.ReliableProducer producer.SyncReliableProducer producer.Transaction producer.SyncTransaction"
    " producer.DeliveryReport producer.DeliveryError producer.BufferFull producer.UnsentRecords"
    " producer.ProducerMetrics"
    " producer.Outbox producer.OutboxDatabase producer.PostgresOutbox producer.SqliteOutbox producer.OutboxRelay"
    " producer.RelayMetrics metrics_text",
    "Consuming": "consumer.ReliableConsumer consumer.SyncReliableConsumer consumer.ConsumeSettings"
    " consumer.ConsumerRecord consumer.CircuitBreaker"
    " consumer.Batch consumer.ConsumerMetrics consumer.ConsumerStatus consumer.HandlerTimeout consumer.OffsetSink"
    " consumer.PostgresOffsets consumer.SqliteOffsets consumer.KafkaOutput consumer.OutputTransaction",
    "Testing": "TopologyTestDriver TestInputTopic TestOutputTopic testing.try_out testing.AgentTest"
    " testing.SentRecord testing.WorkerProcess testing.Backlog",
    "Spark": "SparkRunner runners.spark.BatchResult runners.spark.ColumnSource runners.spark.FrameSource"
    " runners.spark.KafkaSource runners.spark.ParquetSource runners.spark.OutputTable runners.spark.OutputTopic"
    " runners.spark.Published runners.spark.TableRow runners.spark.create_views runners.spark.live_tables"
    " runners.spark.publish runners.spark.spark_session expressions.Expression expressions.Aggregates expressions.avg"
    " expressions.count expressions.key expressions.max_of expressions.min_of expressions.sum_of expressions.value",
}


def public_names() -> set[str]:
    names = set(streamapp.__all__)
    for module in MODULES:
        found = importlib.import_module(f"streamapp.{module}").__all__
        names.update(f"{module}.{name}" for name in found if name not in streamapp.__all__)
    return names


def pages() -> dict[str, str]:
    """The text of each page by its place."""
    found = {}
    for title, names in PARTS.items():
        place = f"reference/{re.sub(r'[^a-z]+', '-', title.lower())}.md"
        blocks = "\n\n".join(f"::: streamapp.{name}" for name in names.split())
        found[place] = f"# {title}\n\nThis page is for people who look up a name. {_SOURCE}\n\n{blocks}\n"
    return found


_SOURCE = "Each entry has the signature and the docstring. Many entries have an example that runs."
