"""What a state store is, as data: enough to open it, to name its changelog and to read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from streamapp.errors import InvalidStoreError
from streamapp.serdes.base import Serde
from streamapp.state.store_kind import StoreKind

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default; what type checkers know of it is enough

    S = TypeVar("S", default=Any, covariant=True)
else:
    from typing import TypeVar

    S = TypeVar("S", covariant=True)

__all__ = ["StoreSpec"]


@dataclass(frozen=True, kw_only=True)
class StoreSpec(Generic[S]):
    """One state store; ``StoreSpec[KeyValueStore[str, int]]`` says as what a processor gets it.

    ``kind`` is one of `streamapp.state.kinds`, with the parameters that only stores of that kind have. `Stores` and
    `Materialized` choose the kind. Raises `InvalidStoreError` for a kind that is none.

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
    """Updates reach downstream once a commit, the last one per key (Kafka Streams' record cache)."""
    serde_topic: str | None = None
    """Topic, without the application id, that the serdes are bound to; None: the store's changelog, whether or not it is written."""
    headers_format: bool = False
    """A table of the DSL on disk with ``dsl_store_format="headers"``: deletions are logged with the headers of the records that caused them."""
    topic_config: dict[str, str] = field(default_factory=dict)
    """Settings of the changelog, beside and before those of the kind."""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, StoreKind):
            raise InvalidStoreError(
                f"the kind of store {self.name!r} has to be a StoreKind, such as Stores.key_value(...) chooses, not {self.kind!r}"
            )
