"""Scans for web pages: a row whose bytes cannot be decoded is shown as unreadable, and the scan goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streamapp.serdes.json_values import Unreadable

__all__ = ["lenient"]


@contextmanager
def lenient(store: Any) -> Iterator[None]:
    """Within the block, scans of the store give an `Unreadable` for each key or value that cannot be decoded.

    A scan must begin and end within the block. If the scan has found an unreadable row, the store drops its decoded
    rows from memory at the end of the block. The rows on disk stay. So the next record that needs the unreadable row
    gets the error of the serde, and no `Unreadable`.

    >>> from streamapp.state.formats import Codec
    >>> from streamapp import LongSerde
    >>> codecs = {"_keys": Codec(LongSerde(), "s", "key"), "_values": Codec(LongSerde(), "s", "value")}
    >>> store = type("Store", (), codecs | {"forget_read": lambda self: print("forgotten")})()
    >>> with lenient(store):
    ...     store._values.from_bytes(b"no").data
    b'no'
    forgotten
    """
    changed: list[tuple[Any, str, Any]] = []
    found: list[Unreadable] = []
    for codec in (getattr(store, "_keys", None), getattr(store, "_values", None)):
        if codec is not None:
            for part in ("show", "from_bytes"):
                changed.append((codec, part, getattr(codec, part)))
                setattr(codec, part, _or_unreadable(getattr(codec, part), found))
    try:
        yield
    finally:
        for codec, part, before in changed:
            setattr(codec, part, before)
        if found:
            store.forget_read()


def _or_unreadable(read: Callable[[Any], Any], found: list[Unreadable]) -> Callable[[Any], Any]:
    def read_or_tell(kept: Any) -> Any:
        if isinstance(kept, Unreadable):
            return kept
        try:
            return read(kept)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            found.append(Unreadable(kept if isinstance(kept, bytes) else b"", why))
            return found[-1]

    return read_or_tell
