"""The settings of an application: Kafka Streams' configuration, in Python spelling.

Names are Kafka's with underscores for dots: ``statestore.cache.max.bytes`` is ``statestore_cache_max_bytes``.
`StreamsConfig.from_properties` takes Kafka's own names.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, TypeVar

from streamapp._base.addresses import check_addresses
from streamapp._base.callables import is_plain_function
from streamapp._base.names import check_topic_name, did_you_mean
from streamapp._base.offset_reset import OffsetReset, check_offset_reset, read_offset_reset
from streamapp._base.secrets import Properties
from streamapp.errors import ConfigError, TopologyError
from streamapp.on_error import ANSWERS, DROPS, Answer, Chooser, ErrorContext, Retry
from streamapp.records import Record
from streamapp.serdes.base import Serde, check_serde

__all__ = [
    "ErrorContext",
    "ExceptionHandler",
    "MemoryShares",
    "OffsetReset",
    "ProcessorWrapper",
    "StreamsConfig",
    "check_config",
]

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MemoryShares:
    """The parts into which ``state_memory_bytes`` is divided, in bytes. All tasks of a process share each part.

    >>> shares = StreamsConfig().memory
    >>> shares.block_cache >> 20, shares.row_cache >> 20, shares.write_buffers >> 20, shares.rows >> 20
    (32, 48, 32, 48)
    """

    block_cache: int
    """Bytes for the block cache of RocksDB."""
    row_cache: int
    """Bytes for small rows in their form on disk, so that the next read of a row needs no look-up in RocksDB. Without
    the compiled part of streamapp, there is no such cache."""
    write_buffers: int
    """Bytes for the write buffers of RocksDB. Writes wait as soon as the buffers have one and a half times this
    size."""
    rows: int
    """Bytes of rows that stay in memory after a read or a write, so that the next read of the row needs no disk."""
    uncommitted: int
    """Bytes of changed rows and results that wait for the commit. At this limit the worker commits early, or below the
    limit if brokers are slow. During a commit, its records take about the same memory again."""
    fetched: int
    """Bytes of records that one consumer of the worker has fetched and nobody has taken yet. The inputs, restores,
    standbys and global topics have a consumer each."""
    waiting: int
    """Bytes of records that wait inside tasks, because another input or an asynchronous step holds the records back."""

    @classmethod
    def of(cls, state_memory_bytes: int) -> MemoryShares:
        """The parts of this number of bytes, in fixed proportions."""
        part = max(1, state_memory_bytes // 32)
        return cls(
            block_cache=4 * part,
            row_cache=6 * part,
            write_buffers=4 * part,
            rows=6 * part,
            uncommitted=4 * part,
            fetched=2 * part,
            waiting=2 * part,
        )


OPTIMIZATIONS = ("reuse.ktable.source.topics", "merge.repartition.topics", "single.store.self.join")


ExceptionHandler = Answer | Chooser
"""The answer to a record that fails: an `Answer`, or a function ``handler(context, exception)`` that returns an answer
or a `Response`.

``context`` is an `ErrorContext`.
"""


ProcessorWrapper = Callable[[str, Callable[[Record], None]], Callable[[Record], None]]
"""A function ``wrapper(name, process)`` that returns the function for the records of one processor.

``name`` is the name of the processor, as `Topology.describe` shows it. ``process(record)`` hands a `Record` to the
processor, which forwards its results before ``process`` returns. (Results of asynchronous steps and of record caches
come later.) The returned function gets each record in place of the processor. The function may call ``process`` any
number of times, also with another record. Sources and sinks are not wrapped.

The value of a record between operators of a table is a tuple of three items: the new value, the old value, and a bool.
The bool is True for the latest version of the row. The old value is None if no later operator needs it. If the returned
function raises, ``processing_exception_handler`` decides about the record.
"""


def _names_unknown_settings(config: type[T]) -> type[T]:
    """Makes a dataclass raise `ConfigError` for an unknown setting. The error suggests the most similar name.

    Without this decorator, Python would raise TypeError.
    """
    made = config.__init__
    known = [setting.name for setting in fields(config)]  # type: ignore[arg-type]

    @functools.wraps(made)
    def __init__(self: T, *args: Any, **settings: Any) -> None:
        for name in settings:
            if name not in known:
                raise ConfigError(f"{config.__name__} has no setting {name}{did_you_mean(name, known)}")
        made(self, *args, **settings)
        object.__setattr__(self, "_given", frozenset((*known[: len(args)], *settings)))

    config.__init__ = __init__  # type: ignore[method-assign,assignment]
    return config


@_names_unknown_settings
@dataclass(frozen=True)
class StreamsConfig:
    """The settings of one application. A configuration is immutable; `replace` makes a changed copy.

    Times are in milliseconds, sizes in bytes. Raises `ConfigError` for wrong values and for settings that contradict
    each other.

    >>> StreamsConfig("flights", commit_interval_ms=500).replace(num_standby_replicas=1).application_id
    'flights'
    """

    application_id: str = "streamapp"
    bootstrap_servers: str | None = None
    """Addresses of brokers as ``host:port``, joined by commas. Default: the variable ``STREAMAPP_BOOTSTRAP_SERVERS``,
    else the local broker at 127.0.0.1:9092."""
    client_properties: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Kafka clients by librdkafka's names, mostly for TLS and SASL (``security.protocol``,
    ``sasl.username`` ...). A setting of TLS or SASL that is left out comes from its environment variable, for example
    ``STREAMAPP_SECURITY_PROTOCOL``. Some TLS and SASL settings have no variable, for example ``ssl.key.pem``. Beside
    such a setting, a variable for TLS or SASL is an error."""

    schema_registry_url: str | None = None
    """The schema registry for serdes that were made without one. Default: the variable
    ``STREAMAPP_SCHEMA_REGISTRY_URL``. Without the variable, each serde has a `LocalSchemaRegistry` of its own."""
    schema_registry_properties: Mapping[str, str] = field(default_factory=dict)
    """Settings of the registry's client by Confluent's names (``basic.auth.user.info``, ``ssl.ca.location``,
    ``auto.register.schemas`` ...). A setting that is left out comes from its environment variable, for example
    ``STREAMAPP_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO``."""

    processing_guarantee: Literal["at_least_once", "exactly_once_v2"] = "at_least_once"
    """After a crash, ``at_least_once`` may write outputs again. With ``exactly_once_v2``, readers of committed records
    see each output once, because outputs, changelogs and offsets are committed in one transaction (KIP-447)."""
    commit_interval_ms: int | None = None
    """The time in ms from one commit to the next. Default: 30,000, or 100 with exactly_once_v2, as in Kafka Streams. A
    commit comes earlier if a processor requests it, or if many bytes wait for it."""
    transaction_timeout_ms: int = 10_000
    """The time in ms after which brokers roll back a transaction that is still open. The rollback may come ten seconds
    later, because brokers look for such transactions every ten seconds by default."""
    session_timeout_ms: int = 45_000
    """The time in ms after which the group gives the tasks of a silent worker to other workers."""
    max_poll_interval_ms: int = 300_000
    """The time in ms that user code may take for one record, one call of a punctuator, or one step on the event loop. A
    worker whose code takes longer ends, so that other workers take over its tasks. Asynchronous steps have time-outs of
    their own."""
    repartition_purge_interval_ms: int = 30_000
    """The shortest time in ms between two deletions of committed records from the repartition topics that a worker
    reads."""
    max_task_idle_ms: int = 0
    """The time in ms for which a task with several inputs waits for a new record of an input that is read to its end.
    Then the task goes on with its other inputs. With 0, a task waits only while an input has unread records in Kafka;
    with -1, a task never waits (KIP-695)."""
    num_standby_replicas: int = 0
    """The number of copies of each task's state, each on another worker. With fewer workers there are fewer copies.
    State without a changelog has no copy. If the task's worker is lost, a copy takes over without a long restore. Until
    then, a copy answers reads that allow stale rows."""
    acceptable_recovery_lag: int = 10_000
    """The largest number of changelog offsets that the state on a worker may lack when a task moves to this worker.
    While the state lacks more, the task stays on its present worker, unless this worker is gone (KIP-441)."""
    max_warmup_replicas: int = 2
    """The largest number of warm-ups at a time in the whole application. A warm-up prepares the state of a task on the
    worker to which the task will move. Standbys do not count."""
    client_rack: str | None = None
    """The rack, or availability zone, of this worker. A standby goes to a worker in another rack, if there is such a
    worker. The worker reads from replicas in its own rack if the brokers allow such reads (KIP-392)."""
    group_instance_id: str | None = None
    """A name that this worker keeps over restarts (static membership, KIP-345). A worker that comes back within
    ``session_timeout_ms`` goes on with its tasks, and the other workers do not rebalance. No two workers may have the
    same name."""
    auto_offset_reset: OffsetReset = "earliest"
    """The place at which a topology or a consumer begins to read a partition of an input topic (`OffsetReset`).

    The setting applies if the group has no committed offset for the partition, or if Kafka has deleted the records at
    this offset. A source of a topology may have a setting of its own, the argument ``offset_reset``. Agents follow
    Faust's ``consumer_auto_offset_reset``."""

    state_dir: str = "./data/state"
    """The folder of the stores on disk. Workers of an application on the same machine need different folders.
    ``datadir`` of `App`, if given, replaces this folder by its own folder ``state``."""
    state_cleanup_delay_ms: int = 600_000
    """The shortest time in ms for which the state of a task stays on disk after the task has moved to another worker. A
    task that comes back within this time needs no full restore of its stores on disk."""
    statestore_cache_max_bytes: int = 10 * 1024 * 1024
    """The size of the record cache that all tasks of a process share. The cache holds updates until a commit, or until
    it is full, and hands on only the last update of each key. With 0 there is no cache, so every update goes
    downstream."""
    state_memory_bytes: int = 256 * 1024 * 1024
    """Memory in bytes for the state of all tasks of a process. RocksDB's caches and write buffers, rows in memory, and
    records that are fetched or wait have a share each (`MemoryShares`). The contents of in-memory stores, of stores
    with ``max_entries`` and of suppressions need further memory."""
    dsl_store_type: Literal["rocksdb", "in_memory"] = "rocksdb"
    """The kind of the stores that the DSL creates, for operators that do not choose one (`Materialized`)."""
    dsl_store_format: Literal["default", "headers"] = "default"
    """``headers``, as in Kafka Streams 4.3, has three effects. Stores of stream-stream and foreign-key joins keep the
    headers of records on disk, too; in memory, they always do. Tombstones in the changelogs of tables have the headers
    of the record that caused the deletion. Tables on disk answer no queries of `streamapp.query`, except versioned
    tables, tables with ``timestamped=False``, and sessions with final results.

    With either format, a table hands on the headers of the record that changed the row. A table of sessions hands on
    headers only with ``default`` and a record cache.
    """
    replication_factor: int = -1
    """The number of replicas of internal topics. Topics that Faust creates have the same number, unless Faust's setting
    or the definition of the topic gives another. -1 means the brokers' default."""

    topology_optimization: str = "none"
    """``none``, ``all``, or a comma-separated list of Kafka Streams' optimisations, such as
    ``merge.repartition.topics``."""
    ensure_explicit_internal_resource_naming: bool = False
    """True: a topology is refused if a store or an internal topic has only a generated name. The next version of the
    topology may generate another name, and would not find the data of this version (KIP-1111). The internal
    topics and the subscription store of a foreign-key join, and a suppression without a changelog, are not checked."""
    foreign_key_join_recheck: bool = False
    """True: an inner foreign-key join checks a result again, if its left row changes while the message about a deleted
    right row is under way. Kafka Streams does not check, and may keep the result of the deleted row. Spark always
    checks."""

    default_key_serde: Serde[Any] | None = None
    """The serde for keys, where an operator or topic gets no serde of its own. None: the missing serde is an error."""
    default_value_serde: Serde[Any] | None = None
    """The serde for values, with the same meaning as ``default_key_serde`` for keys."""
    default_timestamp_extractor: Callable[..., int] | None = None
    """A function ``extractor(record, partition_time)`` that returns the timestamp of a record in ms. Sources without an
    extractor of their own use this function. A negative result drops the record. If the function raises, the worker
    ends, and no exception handler is asked. Default: the timestamp of the record in Kafka.

    Records of global topics, repartition topics and retry topics keep their timestamps. The internal topics of a
    foreign-key join use this function, as in Kafka Streams."""

    deserialization_exception_handler: ExceptionHandler = "fail"
    """The answer to a record of an input topic whose bytes the serdes cannot decode."""
    processing_exception_handler: ExceptionHandler = "fail"
    """The answer to a record for which a function of the topology raises an exception (KIP-1033). If a service has
    failed, for example with a `ConnectionError`, "skip" and "dead_letter" mean "fail"."""
    production_exception_handler: ExceptionHandler = "fail"
    """The answer to an output record that the serdes cannot encode, or that brokers refuse."""
    dead_letter_queue_topic: str | None = None
    """The topic for dead letters: records that fail, unless the handler's answer is "skip" (KIP-1034). With the answer
    "fail", a letter is sent before the worker ends; but ``exactly_once_v2`` rolls this letter back. Agents of Faust,
    and consumers with ``output``, send none."""
    dead_letter_drops: tuple[str, ...] = ()
    """Records that operators drop without an error become dead letters, too, if the reason is listed here, for example
    ``("late", "null_key")``. All reasons: `streamapp.on_error.DROPS`."""
    show_record: Callable[[bytes | None, bytes | None], str] | None = None
    """A function that gives the text of a record for error messages, from the bytes of key and value. Use this setting
    to mask secrets. Default: the first bytes of both.

    With such a function, messages have the types of exceptions without their texts, because a text may quote the
    record. Failures of services keep their texts, and so do errors of streamapp, except those of serdes."""
    processor_wrapper: ProcessorWrapper | None = None
    """A function ``wrapper(name, process)`` that wraps each processor of a topology (KIP-1112), for example to measure
    its time. Each task calls the wrapper once for each processor, operators of the DSL included."""
    application_version: str = ""
    """The version of the application, such as a release or a commit. Dead letters name this version."""

    _given: ClassVar[frozenset[str]] = frozenset()
    """The names of the settings that were given, so that `on_top_of` can tell them from defaults."""

    def __post_init__(self) -> None:
        if isinstance(self.state_dir, os.PathLike):  # what everybody calls a folder
            object.__setattr__(self, "state_dir", os.fspath(self.state_dir))
        for setting in fields(self):
            self._check_type(setting.name, str(setting.type))
        for name in _TOPIC_NAMES:
            try:
                if getattr(self, name) is not None:
                    check_topic_name(getattr(self, name), name)
            except TopologyError as error:
                raise ConfigError(str(error)) from None
        self._name_brokers_once()
        if self.bootstrap_servers is not None:
            check_addresses(self.bootstrap_servers)
        for name, allowed in _ALLOWED.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        check_offset_reset(self.auto_offset_reset, "auto_offset_reset")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} must be at least {least}, not {value}")
        if self.replication_factor == 0:
            raise ConfigError("replication_factor must be at least 1, or -1 for the broker's default, not 0")
        if not self.state_dir:
            raise ConfigError("state_dir is empty; give the path of a folder")
        if self.exactly_once and self.commit_interval >= self.transaction_timeout_ms:
            raise ConfigError(
                "the broker rolls a transaction back after "
                f"transaction_timeout_ms={self.transaction_timeout_ms}, but a commit would come only every "
                f"{self.commit_interval} ms: set a shorter commit_interval_ms or a longer "
                "transaction_timeout_ms"
            )
        for name in ("deserialization", "processing", "production"):
            handler = getattr(self, f"{name}_exception_handler")
            if isinstance(handler, Retry):
                raise ConfigError(
                    f"{name}_exception_handler cannot be a Retry: records wait in a store of one operator. "
                    "Give the operator on_error=Retry..."
                )
            if handler not in ANSWERS and not is_plain_function(handler, 2):
                raise ConfigError(
                    f'{name}_exception_handler must be "fail", "skip", "dead_letter", "continue" or a function '
                    f"(no coroutine function) of an ErrorContext and an exception, not {handler!r}"
                )
            if handler == "dead_letter" and self.dead_letter_queue_topic is None:
                raise ConfigError(
                    f'{name}_exception_handler="dead_letter" needs a topic: set dead_letter_queue_topic'
                )
        if self.default_timestamp_extractor is not None and not is_plain_function(
            self.default_timestamp_extractor, 2
        ):
            raise ConfigError(
                "default_timestamp_extractor must be a function (no coroutine function) of a record and the "
                f"partition's time, not {self.default_timestamp_extractor!r}"
            )
        listed = isinstance(self.dead_letter_drops, Collection) and not isinstance(
            self.dead_letter_drops, str
        )
        if not listed or any(each not in DROPS for each in self.dead_letter_drops):
            raise ConfigError(
                f"dead_letter_drops is a tuple of reasons, each one of {', '.join(DROPS)}, not "
                f"{self.dead_letter_drops!r}"
            )
        if self.dead_letter_drops and self.dead_letter_queue_topic is None:
            raise ConfigError("dead_letter_drops needs a topic: set dead_letter_queue_topic")
        if self.processor_wrapper is not None and not is_plain_function(self.processor_wrapper, 2):
            raise ConfigError(
                "processor_wrapper must be a function (no coroutine function) of a name and a function of a Record, "
                f"not {self.processor_wrapper!r}"
            )
        if self.show_record is not None and not is_plain_function(self.show_record, 2):
            raise ConfigError(
                f"show_record must be a function (no coroutine function) of key and value, not {self.show_record!r}"
            )
        unknown = self.optimizations - set(OPTIMIZATIONS)
        if unknown or not self.topology_optimization:
            raise ConfigError(
                f"topology_optimization: unknown optimisation {', '.join(sorted(unknown)) or repr('')}; "
                f"use none, all, or a comma-separated list of {', '.join(OPTIMIZATIONS)}"
            )

    def _name_brokers_once(self) -> None:
        """Moves ``bootstrap.servers`` of ``client_properties`` to `bootstrap_servers`.

        ``client_properties`` may be the result of `KafkaSettings.librdkafka`, which has the address. Without the move,
        a later `replace` of ``bootstrap_servers`` would leave the old address there.
        """
        named = self.client_properties.get("bootstrap.servers", self.bootstrap_servers)
        if self.bootstrap_servers is None:
            object.__setattr__(self, "bootstrap_servers", named)
        elif named != self.bootstrap_servers:
            raise ConfigError(
                f"client_properties has bootstrap.servers={named}, but bootstrap_servers is {self.bootstrap_servers}: "
                "leave it out of client_properties"
            )
        others = {
            name: value for name, value in self.client_properties.items() if name != "bootstrap.servers"
        }
        object.__setattr__(self, "client_properties", Properties(others))
        registry = Properties(self.schema_registry_properties)
        object.__setattr__(self, "schema_registry_properties", registry)

    def _check_type(self, name: str, declared: str) -> None:
        value = getattr(self, name)
        declared, _, optional = declared.partition(" | ")
        if optional and value is None:
            return
        if declared == "Serde[Any]":
            check_serde(value, name)
        expected = _TYPES.get(declared, object)
        if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
            what = _TYPE_NAMES.get(expected, "") + _UNITS.get(name.rsplit("_", 1)[-1], "")
            shown = type(value).__name__ if name.endswith("_properties") else repr(value)  # may be a secret
            raise ConfigError(f"{name} has to be {what}, not {shown}")

    @property
    def exactly_once(self) -> bool:
        """True if ``processing_guarantee`` is ``exactly_once_v2``."""
        return self.processing_guarantee == "exactly_once_v2"

    @property
    def commit_interval(self) -> int:
        """The commit interval in ms: the setting, or the default of the processing guarantee."""
        if self.commit_interval_ms is not None:
            return self.commit_interval_ms
        return 100 if self.exactly_once else 30_000

    @property
    def memory(self) -> MemoryShares:
        """The parts of ``state_memory_bytes``."""
        return MemoryShares.of(self.state_memory_bytes)

    @property
    def optimizations(self) -> frozenset[str]:
        """The names of the optimisations that ``topology_optimization`` chooses."""
        if self.topology_optimization == "all":
            return frozenset(OPTIMIZATIONS)
        if self.topology_optimization == "none":
            return frozenset()
        return frozenset(part.strip() for part in self.topology_optimization.split(",") if part.strip())

    def replace(self, **changes: Any) -> StreamsConfig:
        """A copy with some settings changed."""
        changed = replace(self, **changes)
        object.__setattr__(changed, "_given", self._given | changes.keys())
        return changed

    def on_top_of(self, other: StreamsConfig) -> StreamsConfig:
        """A copy of ``other``, in which the settings that were given to this configuration replace those of ``other``.

        >>> StreamsConfig(num_standby_replicas=1).on_top_of(StreamsConfig("flights",
        ...     num_standby_replicas=2)).application_id
        'flights'
        """
        return other.replace(**{name: getattr(self, name) for name in self._given})

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> StreamsConfig:
        """A configuration from a mapping of Kafka Streams' property names to values.

        Names that begin with ``security.``, ``sasl.`` or ``ssl.`` go into ``client_properties``, and names such as
        ``schema.registry.ssl.ca.location`` and ``basic.auth.user.info`` into ``schema_registry_properties``. Names that
        are deprecated in Kafka Streams, such as ``cache.max.bytes.buffering``, count as the new names, with a warning
        in the log. If a mapping has both, the new name takes precedence. For exception handlers and stores of Kafka
        Streams, a value may be the name of a Java class. Raises `ConfigError` for any other name that is no setting.

        >>> StreamsConfig.from_properties({"application.id": "a",
        ...     "statestore.cache.max.bytes": "0"}).statestore_cache_max_bytes
        0
        """
        types = {f.name: f.type for f in fields(cls)}
        values: dict[str, Any] = {}
        secured: dict[str, Any] = {}
        registry: dict[str, Any] = {}
        for key, value in _with_new_names(properties).items():
            if key.startswith(_REGISTRY_PROPERTIES) and key != "schema.registry.url":
                registry[key.removeprefix("schema.registry.")] = value
                continue
            if key.startswith(_CLIENT_PROPERTIES):
                secured[key] = value
                continue
            name = _PROPERTY_NAMES.get(key, key.replace(".", "_").replace("-", "_"))
            if name not in types:
                raise ConfigError(f"unknown setting {key}{did_you_mean(name, types).replace('_', '.')}")
            values[name] = _convert(key, value, types[name])
        if secured:
            values["client_properties"] = {**values.get("client_properties", {}), **secured}
        if registry:
            values["schema_registry_properties"] = registry
        return cls(**values)


def check_config(config: Any, taker: str) -> None:
    """Raises `ConfigError` unless ``config`` is a `StreamsConfig` or None. ``taker`` is the name of the caller."""
    if config is not None and not isinstance(config, StreamsConfig):
        raise ConfigError(
            f"{taker} takes a StreamsConfig, not a {type(config).__name__}; properties become one with "
            "StreamsConfig.from_properties(...)"
        )


_TYPES: dict[str, type] = {"str": str, "int": int, "bool": bool, "Mapping[str, str]": Mapping}
_TYPE_NAMES: dict[type, str] = {
    str: "a string",
    int: "an int",
    bool: "True or False",
    Mapping: "a mapping of names to values",
}
_TOPIC_NAMES = ("application_id", "group_instance_id", "dead_letter_queue_topic")
"""Settings whose values follow Kafka's rule for the names of topics."""
_ALLOWED = {
    "processing_guarantee": ("at_least_once", "exactly_once_v2"),
    "dsl_store_type": ("rocksdb", "in_memory"),
    "dsl_store_format": ("default", "headers"),
}
_LEAST = {
    "commit_interval_ms": 1,
    "transaction_timeout_ms": 1,
    "session_timeout_ms": 1,
    "max_poll_interval_ms": 1,
    "state_memory_bytes": 1,
    "max_warmup_replicas": 1,
    "repartition_purge_interval_ms": 1,
    "state_cleanup_delay_ms": 1,
    "statestore_cache_max_bytes": 0,
    "num_standby_replicas": 0,
    "acceptable_recovery_lag": 0,
    "max_task_idle_ms": -1,
    "replication_factor": -1,
}
_UNITS = {"ms": " of milliseconds", "bytes": " of bytes"}

_CLIENT_PROPERTIES = ("security.", "sasl.", "ssl.")
_REGISTRY_PROPERTIES = (
    "schema.registry.",
    "basic.auth.",
    "bearer.auth.",
    "auto.register.schemas",
    "normalize.schemas",
)
_PROPERTY_NAMES = {
    "errors.dead.letter.queue.topic.name": "dead_letter_queue_topic",
    "default.key.serde": "default_key_serde",
    "default.value.serde": "default_value_serde",
    "dsl.store.suppliers.class": "dsl_store_type",
    "processor.wrapper.class": "processor_wrapper",
}
_NEW_NAMES = {
    "cache.max.bytes.buffering": "statestore.cache.max.bytes",
    "default.deserialization.exception.handler": "deserialization.exception.handler",
    "default.dsl.store": "dsl.store.suppliers.class",
    "default.production.exception.handler": "production.exception.handler",
}
"""The properties whose old name is deprecated in Kafka Streams, and the new names."""
_JAVA_VALUES = {
    "deserialization.exception.handler": {
        "LogAndFailExceptionHandler": "fail",
        "LogAndContinueExceptionHandler": "continue",
    },
    "processing.exception.handler": {
        "LogAndFailProcessingExceptionHandler": "fail",
        "LogAndContinueProcessingExceptionHandler": "continue",
    },
    "production.exception.handler": {"DefaultProductionExceptionHandler": "fail"},
    "dsl.store.suppliers.class": {
        "RocksDBDslStoreSuppliers": "rocksdb",
        "InMemoryDslStoreSuppliers": "in_memory",
        "rocksDB": "rocksdb",
    },
}
"""Values of these properties in Java, classes without their package, and the values that mean the same here."""
_JAVA_PACKAGE = "org.apache.kafka.streams."


def _with_new_names(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties, with old names replaced by the new ones."""
    renamed = {}
    for old, new in _NEW_NAMES.items():
        if old in properties:
            if new in properties:
                logger.warning("the property %s is ignored, because its new name %s is given, too", old, new)
            else:
                logger.warning(
                    "the property %s is deprecated in Kafka Streams: use its new name %s", old, new
                )
                renamed[new] = properties[old]
    return {key: value for key, value in properties.items() if key not in _NEW_NAMES} | renamed


def _convert(key: str, value: Any, declared: Any) -> Any:
    if not isinstance(value, str):
        return value
    if declared.startswith("int"):
        try:
            return int(value)
        except ValueError:
            raise ConfigError(f"{key} must be a whole number, not {value!r}") from None
    if declared == "bool":
        if value.lower() not in ("true", "false"):
            raise ConfigError(f"{key} must be true or false, not {value!r}")
        return value.lower() == "true"
    if key == "dsl.store.format":
        return value.lower()
    if key == "auto.offset.reset":
        return read_offset_reset(value)
    if value.startswith(_JAVA_PACKAGE) or "." not in value:
        return _JAVA_VALUES.get(key, {}).get(re.split(r"[.$]", value)[-1], value)
    return value
