"""Checks of the functions that a user gives to a topology, made while the topology is built."""

from __future__ import annotations

import inspect
from typing import Any

from streamapp._base.counted import counted
from streamapp.errors import ConfigError, TopologyError

__all__ = [
    "accepts",
    "check_supplier",
    "gives_coroutine",
    "is_plain_function",
    "require_function",
    "stores_of",
]


def accepts(function: Any, arguments: int) -> bool:
    """True if a function can be called with this number of positional arguments.

    The signature of some functions in C is not known. The result for such a function is True, because it may be right.

    >>> accepts(lambda key, value: value, 2), accepts(lambda value: value, 2), accepts(None, 0)
    (True, False, False)
    """
    if not callable(function):
        return False
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return True
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def is_plain_function(function: Any, arguments: int) -> bool:
    """As `accepts`, for functions whose result is needed at once: False for a coroutine function, too.

    >>> async def later(record, error): ...
    >>> is_plain_function(later, 2), accepts(later, 2)
    (False, True)
    """
    return accepts(function, arguments) and not gives_coroutine(function)


def require_function(
    function: Any,
    operator: str,
    what: str,
    takes: int | None = None,
    *,
    coroutine: bool = False,
    key_option: str | None = None,
) -> None:
    """Raises `TopologyError` if ``function`` is not callable, or not with ``takes`` positional arguments.

    With ``takes=None``, the number of arguments is not checked. ``operator`` and ``what`` name the operator and the
    needed function in the error. Coroutine functions are refused, unless ``coroutine`` is true. ``key_option`` is the
    name of the option with which the operator also passes the key, for example ``with_key``. If ``function`` takes one
    argument too many, the error suggests this option.

    >>> require_function(lambda value: value, "filter() of flights", "a predicate of key and value", 2)
    Traceback (most recent call last):
    ...
    streamapp.errors.TopologyError: filter() of flights needs a predicate of key and value: it is called with \
2 arguments, but <lambda> takes (value)
    """
    if not callable(function):
        raise TopologyError(f"{operator} needs {what}, got {function!r}")
    name = getattr(function, "__name__", type(function).__name__)
    if not coroutine and gives_coroutine(function):
        raise TopologyError(
            f"{operator} needs {what}, but {name} is a coroutine function, and the operator awaits "
            "no result. Give a plain function, or use map_async() or map_values_async()"
        )
    if takes is not None and not accepts(function, takes):
        called = counted(takes, "argument") if takes else "no arguments"
        hint = ""
        if key_option is not None and accepts(function, takes + 1):
            hint = f"; with {key_option}=True the key comes first"
        raise TopologyError(
            f"{operator} needs {what}: it is called with {called}, but {name} takes {inspect.signature(function)}{hint}"
        )


def gives_coroutine(function: Any) -> bool:
    """True for a coroutine function, also in a ``functools.partial``, and for an object whose call is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def check_supplier(supplier: Any, operator: str, method: str, takes: int) -> Any:
    """Raises `TopologyError` unless each call of the supplier returns a new object with the needed methods.

    Returns such an object, or the supplier itself if it is a class.

    The object needs ``init``, ``close``, and the method with the name ``method``. Each task needs a new object, because
    tasks must not share one. A class makes a new object at each call by nature, so this function does not call the
    class. Any other supplier is called twice.
    """
    if not callable(supplier):
        hint = f"; give {type(supplier).__name__} itself" if hasattr(supplier, method) else ""
        raise TopologyError(
            f"{operator} needs a supplier, a function or class that returns a new object for each task, "
            f"got {supplier!r}{hint}"
        )
    require_function(supplier, operator, "a supplier without arguments", 0)
    if isinstance(supplier, type):
        given: Any = supplier
        takes += 1  # self
    else:
        given = supplier()
        if given is supplier():
            raise TopologyError(
                f"the supplier of {operator} gives the same object each time; tasks must not share one: "
                f"return a new {type(given).__name__}"
            )
    function = getattr(given, method, None)
    if getattr(function, "__qualname__", "").startswith("Processor."):
        function = None  # the base class has the method only to be overridden
    if not callable(function):
        name = supplier.__name__ if isinstance(supplier, type) else repr(given)
        raise TopologyError(f"the supplier of {operator} gives {name}, which has no {method}() of its own")
    require_function(function, operator, f"a {method}() for each record", takes)
    for needed in ("init", "close"):
        if not callable(getattr(given, needed, None)):
            base = "ValueTransformer" if method == "transform" else "Processor"
            name = given.__name__ if isinstance(given, type) else type(given).__name__
            raise TopologyError(
                f"{name}, which the supplier of {operator} gives, has no {needed}(); "
                f"derive the class from {base}, which has one"
            )
    return given


def stores_of(supplier: Any, given: Any) -> tuple[Any, ...]:
    """The stores that a processor brings along: the attribute ``stores`` of its supplier, or of the processor itself.

    The attribute of the supplier comes first. ``given`` is the object or the class that `check_supplier` has returned
    for the supplier. `stores_of` does not call the supplier, because a new processor may open connections.

    >>> from streamapp import Processor, Stores, StringSerde
    >>> class Remember(Processor):
    ...     stores = [Stores.key_value("seen", StringSerde(), StringSerde())]
    >>> [spec.name for spec in stores_of(lambda: Remember(), Remember())]
    ['seen']
    """
    stores = getattr(supplier, "stores", None)
    if stores is None:
        stores = getattr(given, "stores", ())
    if not isinstance(stores, (list, tuple)):
        raise ConfigError(f"stores of {supplier!r} has to be a tuple or list of StoreSpec, not {stores!r}")
    return tuple(stores)
