"""Scans for web pages: a row whose bytes cannot be decoded is shown as unreadable, and the scan goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Unreadable", "lenient"]


@dataclass(frozen=True)
class Unreadable:
    """A key or value whose bytes the serde cannot decode. ``why`` is the text of the serde's error."""

    data: bytes
    why: str


@contextmanager
def lenient(store: Any) -> Iterator[None]:
    """Within the block, scans of the store give an `Unreadable` for each key or value that cannot be decoded.

    A scan must begin and end within the block. Do not read by key within the block, because the store would keep the
    `Unreadable` for the next record, which must get the error instead.

    >>> from streamapp.state.formats import Codec
    >>> from streamapp import LongSerde
    >>> codecs = {"_keys": Codec(LongSerde(), "s", "key"), "_values": Codec(LongSerde(), "s", "value")}
    >>> store = type("Store", (), codecs)()
    >>> with lenient(store):
    ...     store._values.from_bytes(b"no").data
    b'no'
    """
    changed: list[tuple[Any, str, Any]] = []
    # A versioned store may keep rows that a read has decoded with from_bytes, so only show is replaced.
    parts = ("show",) if getattr(store, "versioned", False) else ("show", "from_bytes")
    for codec in (getattr(store, "_keys", None), getattr(store, "_values", None)):
        if codec is not None:
            for part in parts:
                changed.append((codec, part, getattr(codec, part)))
                setattr(codec, part, _or_unreadable(getattr(codec, part)))
    try:
        yield
    finally:
        for codec, part, before in changed:
            setattr(codec, part, before)


def _or_unreadable(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read_or_tell(kept: Any) -> Any:
        if isinstance(kept, Unreadable):
            return kept
        try:
            return read(kept)
        except Exception as error:
            return Unreadable(kept if isinstance(kept, bytes) else b"", f"{type(error).__name__}: {error}")

    return read_or_tell
