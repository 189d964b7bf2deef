"""`LastWritten`: saves the second serialization of a value that a store has just serialized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["LastWritten"]


class LastWritten:
    """The value that a store has written last, with its bytes.

    A table's operator writes a value to its store, and hands the same object on. An operator or sink that needs the
    bytes, too, takes the bytes from here. In the example, ``bytes.fromhex`` is called only for "cd".

    >>> last = LastWritten()
    >>> keep, serialize = last.noting(str.encode), last.known_or(bytes.fromhex)
    >>> keep("ab"), serialize("ab"), serialize("cd")
    (b'ab', b'ab', b'\\xcd')
    """

    __slots__ = ("data", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.data: bytes = b""

    def noting(self, keep: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        """``keep``, which also notes its argument and its result."""

        def keep_and_note(value: Any) -> bytes:
            self.data = data = keep(value)
            self.value = value
            return data

        return keep_and_note

    def known_or(
        self, serialize: Callable[[Any], bytes], exact: type | None = None
    ) -> Callable[[Any], bytes]:
        """A function like ``serialize``. For the value that was written last, the function returns the known bytes and
        serializes nothing.

        With ``exact``, the function returns known bytes only for a value of this class.
        """

        def of_any(value: Any) -> bytes:
            return self.data if value is self.value else serialize(value)

        def of_exact(value: Any) -> bytes:
            return self.data if value is self.value and value.__class__ is exact else serialize(value)

        return of_any if exact is None else of_exact
