"""Scans that show the rows whose bytes their serdes cannot read, instead of ending there: for views, which people look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Unreadable", "lenient"]


@dataclass(frozen=True)
class Unreadable:
    """Stands for a key or value that its serde cannot read; ``why`` is what the serde says."""

    data: bytes
    why: str


@contextmanager
def lenient(store: Any) -> Iterator[None]:
    """Scans of the store that begin and end within give an `Unreadable` for each unreadable key or value.

    Only scans: what is read by key is kept for the next record, which has to get an error.

    >>> from streamapp.state.formats import Codec
    >>> from streamapp import LongSerde
    >>> store = type("Store", (), {"_keys": Codec(LongSerde(), "s", "key"), "_values": Codec(LongSerde(), "s", "value")})()
    >>> with lenient(store):
    ...     store._values.from_bytes(b"no").data
    b'no'
    """
    changed: list[tuple[Any, str, Any]] = []
    # A versioned store keeps what a scan reads.
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
