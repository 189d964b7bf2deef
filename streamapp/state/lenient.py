"""Scans for views: a row that its serdes cannot read is shown as unreadable, and does not end the scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Unreadable", "lenient"]


@dataclass(frozen=True)
class Unreadable:
    """A key or value that its serde cannot read; ``why`` is the serde's error."""

    data: bytes
    why: str


@contextmanager
def lenient(store: Any) -> Iterator[None]:
    """Within the block, scans of the store give an `Unreadable` for each unreadable key or value.

    A scan begins and ends within the block. Do not read by key within the block: the store keeps such a row for the
    next record, which must get the error.

    >>> from streamapp.state.formats import Codec
    >>> from streamapp import LongSerde
    >>> codecs = {"_keys": Codec(LongSerde(), "s", "key"), "_values": Codec(LongSerde(), "s", "value")}
    >>> store = type("Store", (), codecs)()
    >>> with lenient(store):
    ...     store._values.from_bytes(b"no").data
    b'no'
    """
    changed: list[tuple[Any, str, Any]] = []
    # A versioned store may keep rows that a scan has read with from_bytes, therefore only show is replaced.
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
