"""`Materialized`: the settings of a table's store, and the `StoreSpec` that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from streamapp._base.durations import Duration, to_ms
from streamapp._base.flags import check_flags
from streamapp._base.names import check_name
from streamapp.config import StreamsConfig
from streamapp.dsl.context import Context
from streamapp.errors import ConfigError, TopologyError
from streamapp.serdes.base import Serde, check_given_serdes
from streamapp.state import kinds
from streamapp.state.spec import StoreSpec
from streamapp.state.store_kind import StoreKind

__all__ = [
    "DERIVED_TTL",
    "Materialized",
    "WindowLayout",
    "check_serdes",
    "keeps_headers",
    "key_value_spec",
    "named_store",
    "refuse_ttl",
    "windowed_spec",
]

DERIVED_TTL = "its rows go with those that it is made of; give the ttl to the tables that it comes from"
_WINDOW_RETENTION = "windows go by their retention; use Materialized(retention=...)"


@dataclass(frozen=True)
class Materialized:
    """The settings of a table's store: its name, its serdes, its kind. (Kafka Streams: ``Materialized``.)

    With a name, the table has a store that can be queried by this name (`KTable.queryable_store_name`). Without one,
    the table has a store with a generated name if it needs one. Settings that are not given come from the operator and
    the configuration.

    - ``store_type``: ``rocksdb`` (on disk), ``in_memory``, or ``lru``, which keeps only the ``max_entries`` rows that
      were used last, in memory. Reads also find the rows that a record cache still has.
    - ``caching``: True, the default, for a record cache: only the last update of a row before each flush goes
      downstream. With ``statestore_cache_max_bytes=0`` there is no record cache. Versioned tables, global tables and
      tables with a ttl have none, nor have sessions and sliding windows with ``EmitStrategy.ON_WINDOW_CLOSE``.
    - ``logging``: True, the default, for a changelog, from which the store is restored. ``topic_config`` has settings
      of the changelog topic.
    - ``retention``: the stream time for which windows are kept. The default is also the least: size + grace, for
      sessions gap + grace, for sliding windows twice their length + grace.
    - ``history_retention``: makes the table versioned, with earlier values for this time (KIP-889).
      ``segment_interval`` is the span of time whose windows or versions are deleted together.
    - ``timestamped``: False for a table without windows whose store on disk does not keep the timestamps of its rows.
    - ``ttl``: a time to live, which Kafka Streams does not have. A row is deleted when its timestamp is ``ttl`` behind
      stream time, with a tombstone in the changelog and downstream. Only tables made of a topic or a stream, and
      aggregations of streams without windows, can have a ttl. A global table cannot.

    Durations are timedelta or ms. Raises `ConfigError` for settings that contradict each other.

    >>> Materialized("delays", caching=False).name
    'delays'
    """

    name: str | None = None
    _: KW_ONLY
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    store_type: Literal["rocksdb", "in_memory", "lru"] | None = None
    max_entries: int | None = None
    caching: bool | None = None
    logging: bool = True
    retention: Duration | None = None
    history_retention: Duration | None = None
    segment_interval: Duration | None = None
    timestamped: bool = True
    ttl: Duration | None = None
    topic_config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name, "store name")
        check_serdes(self, "Materialized")
        check_flags("Materialized", logging=self.logging, timestamped=self.timestamped)
        if self.caching is not None:
            check_flags("Materialized", caching=self.caching)
        if self.store_type not in (None, "rocksdb", "in_memory", "lru"):
            raise ConfigError(
                f"store_type has to be 'rocksdb', 'in_memory' or 'lru', got {self.store_type!r}"
            )
        if (self.store_type == "lru") != (self.max_entries is not None):
            raise ConfigError("store_type='lru' and max_entries belong together: give both or neither")
        if self.max_entries is not None and (not isinstance(self.max_entries, int) or self.max_entries < 1):
            raise ConfigError(f"max_entries has to be an int, at least 1, got {self.max_entries!r}")
        for what, least in (("retention", 0), ("history_retention", 0), ("segment_interval", 1), ("ttl", 1)):
            duration = getattr(self, what)
            if duration is not None and to_ms(duration, what) < least:
                raise ConfigError(f"{what} is too short: {duration}")
        if self.ttl is not None and (self.versioned or self.store_type == "lru" or not self.timestamped):
            raise ConfigError(
                "a table with ttl keeps the latest row of each key with its timestamp: leave out history_retention, "
                "store_type='lru' and timestamped=False, or leave out ttl"
            )
        if self.versioned and (self.store_type in ("lru", "in_memory") or not self.timestamped):
            raise ConfigError(
                "a versioned table (history_retention) is always kept in rocksdb, with timestamps: leave "
                "store_type and timestamped=False out"
            )

    @property
    def versioned(self) -> bool:
        """True if the table keeps earlier versions of its rows (``history_retention``)."""
        return self.history_retention is not None


def check_serdes(options: Any, what: str) -> None:
    """Raises `ConfigError` for options whose serdes or topic settings are of the wrong type."""
    parts = ("key_serde", "value_serde", "other_value_serde")
    check_given_serdes(what, **{part: getattr(options, part, None) for part in parts})
    if not isinstance(options.topic_config, Mapping):
        raise ConfigError(f"topic_config of {what} has to be a dict, not {options.topic_config!r}")
    for setting, value in options.topic_config.items():
        if not isinstance(setting, str) or not isinstance(value, str):
            raise ConfigError(
                f"topic_config of {what} takes text, as in {{'retention.ms': '86400000'}}, not {setting!r}: {value!r}"
            )


def named_store(
    context: Context, materialized: Materialized | None, prefix: str, name: str | None = None
) -> str:
    """The name of the store: the name in ``materialized``, or a generated one."""
    given = materialized.name if materialized is not None else None
    if given is not None:
        return given
    generated = context.names.new_store(prefix)
    logged = materialized is None or materialized.logging
    context.names.note_generated(store=generated, changelog=f"{generated}-changelog" if logged else None)
    return generated


def key_value_spec(
    context: Context,
    name: str,
    materialized: Materialized | None,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> StoreSpec:
    """The specification of the store of a table without windows."""
    m = materialized or Materialized()
    kind = _table_kind(context, m)
    spec = StoreSpec(
        name=name,
        kind=kind,
        key_serde=m.key_serde or key_serde or context.config.default_key_serde,
        value_serde=m.value_serde or value_serde or context.config.default_value_serde,
        persistent=_persistent(context, m),
        logged=m.logging,
        cached=kind.cached_class is not None and _cached(context, m),
        headers_format=kind.headers_format and _headers_format(context, m),
        topic_config=dict(m.topic_config),
    )
    context.stores[name] = spec
    return spec


def _table_kind(context: Context, m: Materialized) -> StoreKind:
    if m.history_retention is not None:
        retention_ms = to_ms(m.history_retention, "history_retention")
        return kinds.Versioned(retention_ms=retention_ms, segment_interval_ms=_given_segment_ms(m))
    if m.max_entries is not None:
        return kinds.LruTable(max_entries=m.max_entries)
    if m.ttl is not None:
        return kinds.ExpiringTable(expires_after_ms=to_ms(m.ttl, "ttl"))
    return kinds.Table() if m.timestamped or not _persistent(context, m) else kinds.PlainTable()


def refuse_ttl(materialized: Materialized | None, table: str, remedy: str) -> None:
    """Raises `TopologyError` if ``materialized`` has a ttl, for tables that cannot have one. ``remedy`` is the advice
    in the error."""
    if materialized is not None and materialized.ttl is not None:
        raise TopologyError(f"{table} cannot have a ttl of its own: {remedy}")


def _check_windowed(m: Materialized, name: str) -> None:
    """Raises `TopologyError` for settings that a store of windows cannot have."""
    refuse_ttl(m, f"windowed table {name}", _WINDOW_RETENTION)
    for option, given in (("store_type='lru'", m.store_type == "lru"), ("history_retention", m.versioned)):
        if given:
            raise TopologyError(f"windowed table {name} cannot have {option}: {_WINDOW_RETENTION}")


@dataclass(frozen=True)
class WindowLayout:
    """The store that a kind of window needs. ``needed_ms`` is its least retention, and ``needed_for`` the reason.

    ``kind`` makes the `StoreKind` from the parameters ``retention_ms``, ``segment_interval_ms`` and ``time_ordered``.
    ``final_cached`` is true if the store has a record cache even if only final results are emitted.
    """

    kind: Callable[..., StoreKind]
    needed_ms: int
    needed_for: str
    _: KW_ONLY
    final_cached: bool = False


def windowed_spec(
    context: Context,
    name: str,
    materialized: Materialized | None,
    key_serde: Serde[Any],
    value_serde: Serde[Any],
    layout: WindowLayout,
    emit_final: bool,
) -> StoreSpec:
    """The specification of the store of a windowed aggregation; ``context.stores`` gets the specification, too.

    Raises `ConfigError` for too short a retention, and `TopologyError` for settings that a store of windows cannot
    have.
    """
    m = materialized or Materialized()
    _check_windowed(m, name)
    kind = layout.kind(
        retention_ms=_retention_ms(m, name, layout.needed_ms, layout.needed_for),
        segment_interval_ms=_given_segment_ms(m),
        time_ordered=emit_final,
    )
    spec = StoreSpec(
        name=name,
        kind=kind,
        key_serde=key_serde,
        value_serde=value_serde,
        persistent=_persistent(context, m),
        logged=m.logging,
        cached=_cached(context, m) and (layout.final_cached or not emit_final),
        headers_format=kind.headers_format and _headers_format(context, m),
        topic_config=dict(m.topic_config),
    )
    context.stores[name] = spec
    return spec


def _given_segment_ms(m: Materialized) -> int:
    return 0 if m.segment_interval is None else to_ms(m.segment_interval, "segment_interval")


def _retention_ms(m: Materialized, name: str, needed_ms: int, reason: str) -> int:
    if m.retention is None:
        return needed_ms
    retention_ms = to_ms(m.retention, "retention")
    if retention_ms < needed_ms:
        raise ConfigError(
            f"store {name} has a retention of {retention_ms} ms, but needs at least {needed_ms} ms: "
            f"{reason}. Give Materialized(retention=...) at least that, or leave it out"
        )
    return retention_ms


def keeps_headers(config: StreamsConfig, store_type: str) -> bool:
    """True if the stores of a join keep headers: always in memory, and on disk with ``dsl_store_format="headers"``."""
    return store_type == "in_memory" or config.dsl_store_format == "headers"


def _headers_format(context: Context, m: Materialized) -> bool:
    return _persistent(context, m) and context.config.dsl_store_format == "headers"


def _persistent(context: Context, m: Materialized) -> bool:
    return m.versioned or (m.store_type or context.config.dsl_store_type) == "rocksdb"


def _cached(context: Context, m: Materialized) -> bool:
    return m.caching is not False and context.config.statestore_cache_max_bytes > 0
