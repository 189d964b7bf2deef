"""Checks of the DSL's arguments, so that the call with a wrong argument raises the error, and not the first record."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from streamapp.dsl.materialize import Materialized
from streamapp.errors import TopologyError
from streamapp.serdes import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UUIDSerde,
)
from streamapp.serdes.base import Serde

__all__ = ["check_materialized", "check_stores"]


_PYTHON_TYPES: dict[type, type] = {
    StringSerde: str,
    ShortSerde: int,
    IntegerSerde: int,
    LongSerde: int,
    FloatSerde: float,
    DoubleSerde: float,
    BooleanSerde: bool,
    BytesSerde: bytes,
    UUIDSerde: UUID,
}


def check_materialized(
    materialized: Any,
    operator: str,
    key_serde: Serde[Any] | None = None,
    value_serde: Serde[Any] | None = None,
) -> None:
    """Raises `TopologyError` unless the argument is a `Materialized` or None, with serdes that fit the rows.

    ``key_serde`` and ``value_serde`` are the serdes of the rows, or None if they are not known.
    """
    if materialized is not None and not isinstance(materialized, Materialized):
        hint = f"Materialized({materialized!r})" if isinstance(materialized, str) else "Materialized(...)"
        raise TopologyError(f"materialized of {operator} is {materialized!r}; give {hint}")
    if materialized is None:
        return
    for part, given, known in (
        ("key", materialized.key_serde, key_serde),
        ("value", materialized.value_serde, value_serde),
    ):
        writes, holds = _PYTHON_TYPES.get(type(given)), _PYTHON_TYPES.get(type(known))
        if writes is not None and holds is not None and writes is not holds:
            raise TopologyError(
                f"the {part}s of {operator} are {holds.__name__}, as {type(known).__name__} says, and "
                f"Materialized({part}_serde={type(given).__name__}()) writes {writes.__name__}; leave "
                f"{part}_serde out, or give one for {holds.__name__}"
            )


def check_stores(names: tuple[Any, ...], operator: str) -> None:
    """Raises `TopologyError` if a store is given in another form than its name, for example as a `StoreSpec`."""
    for name in names:
        if not isinstance(name, str):
            raise TopologyError(
                f"{operator} takes the names of stores, not {name!r}; add the store with add_state_store() "
                "and give its name, or let the supplier bring it (`stores`)"
            )
