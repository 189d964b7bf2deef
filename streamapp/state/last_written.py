"""`LastWritten`: saves the second serialization of a value that a store has just serialized."""

from __future__ import annotations

from typing import Any

__all__ = ["LastWritten"]


class LastWritten:
    """The value that a store has handed on last, with its bytes.

    A table's operator writes a value to its store, and hands the same object on. An operator that needs the bytes, too,
    takes the bytes from here if ``value`` is its object.
    """

    __slots__ = ("data", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.data: bytes = b""
