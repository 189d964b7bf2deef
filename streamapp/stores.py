"""Stores that processors bring along: specifications for `StreamsBuilder.add_state_store` and
`Topology.add_state_store`."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, overload

from streamapp._base.durations import Duration, to_ms
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
    """Makes `StoreSpec` objects, as Kafka Streams' ``Stores`` makes store builders. Durations are timedelta or ms.

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
        """Plain values by key. (``Stores.keyValueStoreBuilder``)

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
        """Values with the timestamp of their last update by key. (``Stores.timestampedKeyValueStoreBuilder``)

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
        """Plain values of the keys that were used last, in memory. (``Stores.lruMap``)

        >>> from streamapp import LongSerde, StringSerde
        >>> Stores.lru("hot", 1000, StringSerde(), LongSerde()).kind
        Lru(max_entries=1000)
        """
        if not isinstance(max_entries, int) or max_entries < 0:
            raise ConfigError(
                f"max_entries of store {name} has to be an int, not negative, but is {max_entries!r}"
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
        """Values by key and window start, kept for ``retention`` of stream time. (``Stores.windowStoreBuilder``)

        ``retain_duplicates``: a row for each put, not one for each key and start. ``timestamped``: with the timestamp
        of the update.

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
        kind_class = kinds.TimestampedWindow if timestamped else kinds.Window
        kind = kind_class(retention_ms=retention_ms, size_ms=size_ms, retain_duplicates=retain_duplicates)
        return _spec(kind, name, key_serde, value_serde, store_type, logging, caching)

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
        """Values by key and session (start, end), kept for ``retention`` of stream time after their end.
        (``Stores.sessionStoreBuilder``)

        >>> from streamapp import LongSerde, StringSerde
        >>> Stores.session("visits", StringSerde(), LongSerde(), retention=60_000).kind.segment_ms
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
        """All versions of a key that were valid within ``history_retention`` of stream time (KIP-889).
        (``Stores.versionedKeyValueStoreBuilder``)

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
