"""What can be known of a function before it is called."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["accepts"]


def accepts(function: Any, arguments: int) -> bool:
    """Whether it can be called with so many positional arguments. What does not tell, as some functions in C, counts as if it could.

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
