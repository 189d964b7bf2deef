"""Wrong arguments, found where they are given rather than at the first record."""

from __future__ import annotations

from typing import Any

from streamapp.dsl.materialize import Materialized
from streamapp.dsl.stream import require_function
from streamapp.errors import TopologyError

__all__ = ["check_materialized", "check_stores", "check_supplier"]


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


def check_supplier(supplier: Any, operator: str, method: str, takes: int) -> None:
    """Raises `TopologyError` unless the supplier gives a new object with the method each time it is called."""
    if not callable(supplier):
        hint = f"; give {type(supplier).__name__} itself" if hasattr(supplier, method) else ""
        raise TopologyError(
            f"{operator} needs a supplier, a function or class that returns a new object for each task, got {supplier!r}{hint}"
        )
    require_function(supplier, operator, "a supplier without arguments", 0)
    if isinstance(supplier, type):
        given: Any = supplier
        takes += 1  # itself
    else:
        given = supplier()
        if given is supplier():
            raise TopologyError(
                f"the supplier of {operator} gives the same object each time; tasks must not share one: return a new {type(given).__name__}"
            )
    function = getattr(given, method, None)
    if getattr(function, "__qualname__", "").startswith("Processor."):
        function = None  # the base's, which is there to be overridden
    if not callable(function):
        name = supplier.__name__ if isinstance(supplier, type) else repr(given)
        raise TopologyError(f"the supplier of {operator} gives {name}, which has no {method}() of its own")
    require_function(function, operator, f"a {method}() for each record", takes)
