"""`StoreSpec`: the description of a state store, with its name, its kind, its serdes and its changelog settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from streamapp._base.names import persistent_serde_names
from streamapp.errors import InvalidStoreError
from streamapp.serdes.base import Serde
from streamapp.serdes.registered import own_schema
from streamapp.state.store_kind import StoreKind

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # has defaults, which only type checkers need

    S = TypeVar("S", default=Any, covariant=True)
else:
    from typing import TypeVar

    S = TypeVar("S", covariant=True)

__all__ = ["StoreSpec", "of_other_keys", "same_rows"]

_KEY_SCHEMA = ", key schema "


def same_rows(one: str, other: str) -> bool:
    """True if two texts of `StoreSpec.changelog_rows` describe rows that are read in the same way.

    The texts of earlier releases do not name the schema of keys.

    >>> same_rows("sessions, A/B, key schema 1f", "sessions, A/B"), same_rows("sessions, A/B", "sessions, A/C")
    (True, False)
    """
    return one == other or (_rows(one) == _rows(other) and (_KEY_SCHEMA in one) != (_KEY_SCHEMA in other))


def of_other_keys(one: str, other: str) -> bool:
    """True if two texts of `StoreSpec.changelog_rows` differ in the schema of keys only."""
    return _rows(one) == _rows(other) and not same_rows(one, other)


def _rows(words: str) -> str:
    return words.partition(_KEY_SCHEMA)[0]


@dataclass(frozen=True, kw_only=True)
class StoreSpec(Generic[S]):
    """The description of one state store. Users make it with `Stores` or `Materialized`.

    The type argument, for type checkers, is the store that a processor gets, such as
    ``StoreSpec[KeyValueStore[str, int]]``. ``kind`` is a `StoreKind` with its parameters, for example the retention of
    windows. ``persistent`` stores are on disk, all others in memory. A ``logged`` store has a changelog. Raises
    `InvalidStoreError` if ``kind`` is no `StoreKind`.

    >>> from streamapp import LongSerde, Stores, StringSerde
    >>> Stores.session("visits", StringSerde(), LongSerde(), retention=60_000).kind
    Session(retention_ms=60000, segment_interval_ms=0, time_ordered=False)
    """

    name: str
    kind: StoreKind
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    persistent: bool = True
    logged: bool = True
    cached: bool = False
    """True: the store asks for a record cache. The store has none if the limit of the caches is 0 bytes, or if its kind
    has no cache. With a cache, operators downstream get only the last update of each key, at a flush."""
    serde_topic: str | None = None
    """The topic to which the serdes are bound, without the application id.

    None means the name of the store's changelog, even if the store is not logged.
    """
    headers_format: bool = False
    """True for a table of the DSL on disk with ``dsl_store_format="headers"``, if its kind has this format.

    In the changelog of such a table, a tombstone has the headers of the record that caused the deletion.
    """
    internal: bool = False
    """True for a store that an operator of the DSL has for itself, for example for records that wait for a retry.
    Views list the store after the tables of the application. DataFrames, SQL and replays do not have the store."""
    topic_config: dict[str, str] = field(default_factory=dict)
    """Settings of the changelog, which override the settings of the kind."""

    @property
    def changelog_rows(self) -> str:
        """The words that describe the rows of the changelog in the metadata of committed offsets, with the serdes.

        If the bytes of a key have the id of a schema, the words have a hash of this schema. A key with another schema
        has other bytes, and does not find its row.

        >>> from streamapp import LongSerde, Stores, StringSerde
        >>> Stores.window("days", StringSerde(), LongSerde(), retention=60_000, window_size=6_000).changelog_rows
        'windows of 6000 ms, StringSerde/LongSerde'
        """
        serdes = persistent_serde_names(self.key_serde, self.value_serde)
        schema = own_schema(self.key_serde)
        end = "" if schema is None else f"{_KEY_SCHEMA}{schema}"
        return f"{self.kind.changelog_rows}, {serdes}{end}"

    def __post_init__(self) -> None:
        if not isinstance(self.kind, StoreKind):
            raise InvalidStoreError(
                f"the kind of store {self.name!r} has to be a StoreKind, such as Stores.key_value(...) chooses, "
                f"not {self.kind!r}"
            )
