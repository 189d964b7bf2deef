"""Counts of names in a source and in a topic, side by side on disk, so that they need not fit into memory."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from rocksdict import Options, Rdict, ReadOptions, WriteBatch

from streamapp.state.directory import state_error

__all__ = ["Difference", "Ledger"]

_ROW = struct.Struct(">qq")
_MOST = 100_000
"""The number of names that wait in memory before they are written to disk."""


class Difference(NamedTuple):
    """A name that the source and the topic have in different numbers."""

    name: str
    expected: int
    found: int


class Ledger:
    """Counts how often each name is expected and found. The folder has temporary data, and must be empty at the start.

    >>> import tempfile
    >>> ledger = Ledger(tempfile.mkdtemp())
    >>> for name in ("o1", "o2", "o3"):
    ...     ledger.expect(name)
    >>> for name in ("o1", "o3", "o3"):
    ...     ledger.find(name)
    >>> list(ledger.differences())
    [Difference(name='o2', expected=1, found=0), Difference(name='o3', expected=1, found=2)]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._new: dict[str, list[int]] = {}
        self.expected: int = 0
        self.found: int = 0
        """The sum of all ``times`` that `find` got; ``expected`` is the same for `expect`."""
        try:
            self._rows = Rdict(self._path, Options(raw_mode=True))
        except Exception as error:
            raise state_error(self._path, error) from error

    def expect(self, name: str, times: int = 1) -> None:
        """Counts a name of the source."""
        self._add(name, times, 0)

    def find(self, name: str, times: int = 1) -> None:
        """Counts a name of the topic."""
        self._add(name, 0, times)

    def is_missing(self, name: str) -> bool:
        """True if fewer copies of the record are found than expected."""
        self._write()
        row = self._rows.get(name.encode())
        if row is None:
            return False
        expected, found = _ROW.unpack(row)
        return bool(found < expected)

    def differences(self) -> Iterator[Difference]:
        """All names whose expected and found numbers differ, in the order of their UTF-8 bytes."""
        self._write()
        rows = self._rows.iter(ReadOptions())
        rows.seek_to_first()
        while rows.valid():
            expected, found = _ROW.unpack(rows.value())
            if expected != found:
                yield Difference(rows.key().decode(), expected, found)
            rows.next()
        try:
            rows.status()
        except Exception as error:
            raise state_error(self._path, error) from error

    def close(self) -> None:
        self._rows.close()

    def _add(self, name: str, expected: int, found: int) -> None:
        self.expected += expected
        self.found += found
        row = self._new.get(name)
        if row is None:
            if len(self._new) >= _MOST:
                self._write()
            self._new[name] = [expected, found]
        else:
            row[0] += expected
            row[1] += found

    def _write(self) -> None:
        if not self._new:
            return
        batch = WriteBatch(raw_mode=True)
        for name, (expected, found) in self._new.items():
            key = name.encode()
            before = self._rows.get(key)
            if before is not None:
                earlier = _ROW.unpack(before)
                expected, found = expected + earlier[0], found + earlier[1]
            batch.put(key, _ROW.pack(expected, found))
        try:
            self._rows.write(batch)
        except Exception as error:
            raise state_error(self._path, error) from error
        self._new.clear()
