"""The rows of a record cache in a fixed order, for look-ups that walk over the entries of several keys."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from streamapp.state.cache_entry import CacheEntry
from streamapp.state.sorted_entries import SortedEntries

__all__ = ["CacheOrder"]


class CacheOrder:
    """The entries of a cache, ordered by a place that each key has. A look-up first sorts in the entries that are new.

    >>> entries = {"b": CacheEntry(), "a": CacheEntry()}
    >>> order = CacheOrder(entries, lambda row_key: (row_key, row_key))
    >>> order.between(None, None), order.between(("b",), None)
    (['a', 'b'], ['b'])
    >>> del entries["a"]
    >>> order.leave("a")
    >>> order.between(None, None)
    ['b']
    """

    __slots__ = ("_entries", "_place", "_places", "_sorted")

    def __init__(self, entries: dict[Any, CacheEntry], place: Callable[[Any], tuple[Any, ...]]) -> None:
        """``place`` gives the sort key of a row. Its last item is the key of the row."""
        self._entries, self._place = entries, place
        self._places: dict[Any, tuple[Any, ...]] = {}
        """The places of the rows in `_sorted`."""
        self._sorted = SortedEntries()

    def leave(self, row_key: Any) -> None:
        """Called when an entry has left the cache."""
        place = self._places.pop(row_key, None)
        if place is not None:
            self._sorted.remove(place)

    def between(self, start: Any, end: Any, reverse: bool = False) -> list[Any]:
        """The keys of the rows from ``start`` to before ``end``; None means no bound."""
        self._add_new()
        return [place[-1] for place in self._sorted.between(start, end, reverse)]

    def first(self, start: Any) -> Any:
        """The first place from ``start`` on, or None."""
        self._add_new()
        return next(self._sorted.between(start, None), None)

    def _add_new(self) -> None:
        entries, places = self._entries, self._places
        new = len(entries) - len(places)
        if new > 0:  # new entries are at the end of the dict
            place = self._place
            for row_key in islice(reversed(entries), new):
                places[row_key] = place(row_key)
            self._sorted.update(islice(reversed(places.values()), new))
