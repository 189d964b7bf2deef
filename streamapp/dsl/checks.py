"""Wrong arguments, found where they are given rather than at the first record."""

from __future__ import annotations

from typing import Any

from streamapp.dsl.materialize import Materialized
from streamapp.errors import TopologyError

__all__ = ["check_materialized", "check_stores"]


def check_materialized(materialized: Any, operator: str) -> None:
    """Raises `TopologyError` for what is neither a `Materialized` nor None."""
    if materialized is not None and not isinstance(materialized, Materialized):
        hint = f"Materialized({materialized!r})" if isinstance(materialized, str) else "Materialized(...)"
        raise TopologyError(f"materialized of {operator} is {materialized!r}; give {hint}")


def check_stores(names: tuple[Any, ...], operator: str) -> None:
    """Raises `TopologyError` for stores that are not given by their names."""
    for name in names:
        if not isinstance(name, str):
            raise TopologyError(
                f"{operator} takes the names of stores, not {name!r}; add the store with add_state_store() and give its "
                "name, or let the supplier bring it (`stores`)"
            )
