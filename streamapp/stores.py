"""Specifications of the stores that processors use, for `StreamsBuilder.add_state_store`,
`Topology.add_state_store`, and the attribute ``stores`` of a processor."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, overload

from streamapp._base.durations import Duration, to_ms
from streamapp._base.flags import check_flags
from streamapp._base.names import check_name
from streamapp.errors import ConfigError
from streamapp.serdes.base import Serde, check_serde
from streamapp.state import kinds
from streamapp.state.protocols import (
    KeyValueStore,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    VersionedStore,
    WindowStore,
)
from streamapp.state.spec import StoreSpec
from streamapp.state.store_kind import StoreKind

__all__ = ["Stores"]

K = TypeVar("K")
V = TypeVar("V")

StoreType = Literal["rocksdb", "in_memory"]


class Stores:
    """Makes specifications of stores (`StoreSpec`), as Kafka Streams' ``Stores`` makes store builders.

    Several methods have the same options. ``store_type`` is "rocksdb" (on disk) or "in_memory". With ``logging``, the
    default, the store has a changelog topic, from which another worker restores the store. With ``caching``, the store
    has a record cache, as in Kafka Streams. Durations are timedelta or ms. Each method raises `ConfigError` or
    `TopologyError` for wrong arguments.

    >>> from streamapp import LongSerde, StringSerde
    >>> str(Stores.key_value("seen", StringSerde(), LongSerde(), store_type="in_memory").kind)
    'key_value'
    """

    @staticmethod
    def key_value(
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        store_type: StoreType = "rocksdb",
        logging: bool = True,
        caching: bool = False,
    ) -> StoreSpec[KeyValueStore[K, V]]:
        """A store of one value for each key. (``Stores.keyValueStoreBuilder``)

        >>> from streamapp import LongSerde, StringSerde
        >>> Stores.key_value("seen", StringSerde(), LongSerde()).persistent
        True
        """
        return _spec(kinds.KeyValue(), name, key_serde, value_serde, store_type, logging, caching)

    @staticmethod
    def timestamped_key_value(
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        store_type: StoreType = "rocksdb",
        logging: bool = True,
        caching: bool = False,
    ) -> StoreSpec[TimestampedKeyValueStore[K, V]]:
        """A store of one value for each key, with the timestamp of the last update.

        (``Stores.timestampedKeyValueStoreBuilder``)

        >>> from streamapp import LongSerde, StringSerde
        >>> str(Stores.timestamped_key_value("seen", StringSerde(), LongSerde()).kind)
        'timestamped'
        """
        return _spec(kinds.Table(), name, key_serde, value_serde, store_type, logging, caching)

    @staticmethod
    def lru(
        name: str,
        max_entries: int,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        logging: bool = True,
        caching: bool = False,
    ) -> StoreSpec[KeyValueStore[K, V]]:
        """A store in memory for at most ``max_entries`` keys. One more key deletes the key that was read or written the
        longest time ago.

        (``Stores.lruMap``)

        >>> from streamapp import LongSerde, StringSerde
        >>> Stores.lru("hot", 1000, StringSerde(), LongSerde()).kind
        Lru(max_entries=1000)
        """
        if not isinstance(max_entries, int) or max_entries < 1:
            raise ConfigError(
                f"max_entries of store {name} has to be an int, at least 1, but is {max_entries!r}"
            )
        kind = kinds.Lru(max_entries=max_entries)
        return _spec(kind, name, key_serde, value_serde, "in_memory", logging, caching)

    @overload
    @staticmethod
    def window(
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        retention: Duration,
        window_size: Duration,
        retain_duplicates: bool = False,
        timestamped: Literal[False] = False,
        store_type: StoreType = "rocksdb",
        logging: bool = True,
        caching: bool = False,
    ) -> StoreSpec[WindowStore[K, V]]: ...
    @overload
    @staticmethod
    def window(
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        retention: Duration,
        window_size: Duration,
        retain_duplicates: bool = False,
        timestamped: Literal[True],
        store_type: StoreType = "rocksdb",
        logging: bool = True,
        caching: bool = False,
    ) -> StoreSpec[TimestampedWindowStore[K, V]]: ...
    @staticmethod
    def window(
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        retention: Duration,
        window_size: Duration,
        retain_duplicates: bool = False,
        timestamped: bool = False,
        store_type: StoreType = "rocksdb",
        logging: bool = True,
        caching: bool = False,
    ) -> StoreSpec[Any]:
        """A store of values by key and window start. (``Stores.windowStoreBuilder``)

        The stream time of a store is the largest window start that was ever put. A row expires when its window start is
        ``retention`` before this time. With ``retain_duplicates``, each put of a value adds a row; otherwise a put
        replaces the row with the same key and start. With ``timestamped``, each value has the timestamp of its last
        update. A store with ``retain_duplicates`` has no record cache, even with ``caching``.

        >>> from datetime import timedelta
        >>> from streamapp import LongSerde, StringSerde
        >>> day = timedelta(days=1)
        >>> Stores.window("days", StringSerde(), LongSerde(), retention=7 * day, window_size=day).kind.window_size_ms
        86400000
        """
        retention_ms, size_ms = to_ms(retention, "retention"), to_ms(window_size, "window_size")
        if retention_ms < 0 or size_ms < 0:
            raise ConfigError(f"retention and window_size of store {name} must not be negative")
        if size_ms > retention_ms:
            raise ConfigError(
                f"retention of store {name} is {retention_ms} ms, shorter than its window size of {size_ms} "
                "ms; make it at least as long"
            )
        check_flags(f"store {name}", retain_duplicates=retain_duplicates, timestamped=timestamped)
        kind_class = kinds.TimestampedWindow if timestamped else kinds.Window
        kind = kind_class(retention_ms=retention_ms, size_ms=size_ms, retain_duplicates=retain_duplicates)
        # A record cache has one row for each key and start, so it would lose duplicates.
        cached = caching and not retain_duplicates
        return _spec(kind, name, key_serde, value_serde, store_type, logging, cached)

    @staticmethod
    def session(
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        retention: Duration,
        store_type: StoreType = "rocksdb",
        logging: bool = True,
        caching: bool = False,
    ) -> StoreSpec[SessionStore[K, V]]:
        """A store of values by key and session (start, end). (``Stores.sessionStoreBuilder``)

        A row expires when the end of its session is ``retention`` before the largest session end that was ever put.

        >>> from streamapp import LongSerde, StringSerde
        >>> Stores.session("visits", StringSerde(), LongSerde(), retention=60_000).kind.retention_ms
        60000
        """
        retention_ms = to_ms(retention, "retention")
        if retention_ms < 0:
            raise ConfigError(f"retention of store {name} must not be negative, but is {retention_ms} ms")
        kind = kinds.Session(retention_ms=retention_ms)
        return _spec(kind, name, key_serde, value_serde, store_type, logging, caching)

    @staticmethod
    def versioned(
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        history_retention: Duration,
        segment_interval: Duration | None = None,
        logging: bool = True,
    ) -> StoreSpec[VersionedStore[K, V]]:
        """A store of the present value of each key, and of its earlier values (KIP-889).

        An earlier value is kept for ``history_retention`` of stream time after a newer value has replaced it. Expired
        values are deleted in groups: together with all values that were replaced within the same ``segment_interval``
        (default: as in Kafka Streams). (``Stores.versionedKeyValueStoreBuilder``)

        >>> from streamapp import LongSerde, StringSerde
        >>> Stores.versioned("prices", StringSerde(), LongSerde(), history_retention=60_000).kind.history_ms
        60000
        """
        retention_ms = to_ms(history_retention, "history_retention")
        if retention_ms < 0:
            raise ConfigError(
                f"history_retention of store {name} must not be negative, but is {retention_ms} ms"
            )
        segment_ms = 0
        if segment_interval is not None:
            segment_ms = to_ms(segment_interval, "segment_interval")
            if segment_ms < 1:
                raise ConfigError(
                    f"segment_interval of store {name} has to be at least 1 ms, not {segment_ms}"
                )
        kind = kinds.Versioned(retention_ms=retention_ms, segment_interval_ms=segment_ms)
        return _spec(kind, name, key_serde, value_serde, "rocksdb", logging, False)


def _spec(
    kind: StoreKind,
    name: str,
    key_serde: Serde[Any],
    value_serde: Serde[Any],
    store_type: StoreType,
    logging: bool,
    caching: bool,
) -> StoreSpec:
    check_name(name, "store name")
    check_serde(key_serde, f"key_serde of store {name}")
    check_serde(value_serde, f"value_serde of store {name}")
    check_flags(f"store {name}", logging=logging, caching=caching)
    if store_type not in ("rocksdb", "in_memory"):
        raise ConfigError(f'store_type of store {name} must be "rocksdb" or "in_memory", not {store_type!r}')
    return StoreSpec(
        name=name,
        kind=kind,
        key_serde=key_serde,
        value_serde=value_serde,
        persistent=store_type == "rocksdb",
        logged=logging,
        cached=caching,
    )
