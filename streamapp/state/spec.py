"""The description of a state store: all that is needed to open the store, name its changelog and read its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from streamapp.errors import InvalidStoreError
from streamapp.serdes.base import Serde
from streamapp.state.store_kind import StoreKind

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # has defaults, which only type checkers need

    S = TypeVar("S", default=Any, covariant=True)
else:
    from typing import TypeVar

    S = TypeVar("S", covariant=True)

__all__ = ["StoreSpec"]


@dataclass(frozen=True, kw_only=True)
class StoreSpec(Generic[S]):
    """One state store.

    The type argument is the type of the store in a processor, for example ``StoreSpec[KeyValueStore[str, int]]``.
    ``kind`` is a kind of `streamapp.state.kinds`, with the parameters of this kind. `Stores` and `Materialized` choose
    the kind. Raises `InvalidStoreError` if ``kind`` is no `StoreKind`.

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
    """True if the next operators get only the last update of each key, at a flush (Kafka Streams' record cache)."""
    serde_topic: str | None = None
    """The topic, without the application id, that the serdes are bound to.

    None means the store's changelog, even if the store is not logged.
    """
    headers_format: bool = False
    """True for a table of the DSL on disk with ``dsl_store_format="headers"``.

    The tombstones of such a table have the headers of the records that caused them in the changelog.
    """
    topic_config: dict[str, str] = field(default_factory=dict)
    """Settings of the changelog, which override the settings of the kind."""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, StoreKind):
            raise InvalidStoreError(
                f"the kind of store {self.name!r} has to be a StoreKind, such as Stores.key_value(...) chooses, "
                f"not {self.kind!r}"
            )
