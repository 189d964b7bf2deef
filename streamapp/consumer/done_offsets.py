"""`DoneOffsets`: the records of a partition that are done, also those behind a record that is not done.

Records of different keys finish in any order, but a committed position only says that all records before it are done.
So the metadata of the commit also names the records after the position that are done. A restart then repeats only
records that are not done. Confluent's parallel consumer does the same.

The metadata ends with the id of the topic, in the form of agents and workers (`engine/metadata.py`).
"""

from __future__ import annotations

import base64
import binascii
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from streamapp.engine.metadata import DONE_END, DONE_MARK, metadata_of

__all__ = ["MOST_AHEAD", "DoneOffsets", "decode_done", "encode_done"]

MOST_AHEAD = 20_000
"""The largest distance of a record from the first record that is not done. A record further ahead waits for its call.

With this limit, the metadata of a commit has at most 3,500 bytes. Brokers take at most 4,096
(``offset.metadata.max.bytes``).
"""


class DoneOffsets:
    """The records of one partition that were received and are not done yet.

    ``position`` is the offset to commit: the offset of the first record that is not done. If all records are done, it
    is the offset after the last record, and after the markers of transactions behind this record. None: no record has
    come yet, and the group has no committed offset. Offsets without a record count as done. ``topic_id`` is the id of
    the topic, if known, for the metadata of commits.

    >>> done = DoneOffsets()
    >>> [done.take(offset) for offset in (5, 6, 9)]
    [True, True, True]
    >>> done.finish([6]), done.position, done.open
    (None, 5, [5, 9])
    >>> done.finish([5]), done.position
    (None, 9)
    """

    def __init__(
        self, position: int | None = None, done: Iterable[int] = (), topic_id: str | None = None
    ) -> None:
        self.topic_id: str | None = topic_id
        self._id_text = metadata_of(topic_id)
        self._open: list[int] = []
        self._end = position
        self._before = frozenset(done)
        """Records behind ``position`` that were done before this object was made, for example by an earlier owner."""
        self._highest_before = max(self._before, default=-1)
        self._highest = self._highest_before
        """The highest offset that is done."""

    @property
    def position(self) -> int | None:
        return self._open[0] if self._open else self._end

    @property
    def open(self) -> Sequence[int]:
        """The offsets of the records that were received and are not done yet, in order."""
        return self._open

    @property
    def end(self) -> int | None:
        """The offset after the last record that was received, and after the markers behind this record."""
        return self._end

    def take(self, offset: int) -> bool:
        """Adds the next record; offsets ascend. Returns False if this record is done already, for example by an earlier
        owner."""
        self._end = offset + 1
        new = offset not in self._before
        if new:
            self._open.append(offset)
        if self._before and offset >= self._highest_before:
            self._before = frozenset()  # from here on, they count like gaps
        return new

    def reach(self, end: int) -> None:
        """Notes that no further record lies below ``end``, the end of the log. Transaction markers may lie there.

        The end of an empty log, 0, is no position.

        >>> done = DoneOffsets()
        >>> done.take(5), done.reach(7), done.position
        (True, None, 5)
        >>> done.finish([5]), done.position
        (None, 7)
        """
        if end > (self._end or 0):
            self._end = end

    def finish(self, offsets: Iterable[int]) -> None:
        """Marks records as done."""
        for offset in offsets:
            at = bisect_left(self._open, offset)
            if at < len(self._open) and self._open[at] == offset:
                del self._open[at]
                self._highest = max(self._highest, offset)

    def committed(self, also: Iterable[int] = ()) -> tuple[int, str] | None:
        """Position and metadata to commit, as if the records ``also`` were done, too. None if there is no position
        yet."""
        extra = set(also)
        open = [offset for offset in self._open if offset not in extra]
        position = open[0] if open else self._end
        if position is None:
            return None
        highest = max(self._highest, max(extra, default=-1))
        done = {offset for offset in self._before if offset >= position}
        if self._end is not None:
            left = set(open)
            done |= {o for o in range(position, min(highest + 1, self._end)) if o not in left}
        return position, encode_done(position, done) + self._id_text


def encode_done(position: int, done: Iterable[int]) -> str:
    """The beginning of a commit's metadata: the offsets from ``position`` on that are done. Empty if there are none.

    >>> decode_done(100, encode_done(100, [101, 103, 104]))
    [101, 103, 104]
    """
    ahead = sorted(offset - position for offset in done if offset >= position)
    if not ahead:
        return ""
    bits = bytearray(ahead[-1] // 8 + 1)
    for each in ahead:
        bits[each // 8] |= 1 << each % 8
    plain, packed = b"b" + bits, b"z" + zlib.compress(bytes(bits), 9)
    text = base64.b85encode(min(plain, packed, key=len)).decode()
    return f"{DONE_MARK}{len(text)}:{text}{DONE_END}"


def decode_done(position: int, metadata: str) -> list[int]:
    """The offsets that were given to `encode_done`. Metadata of other clients, and metadata that is cut off or cannot
    be decoded, give no offsets. A restart then repeats records and loses none. The metadata has no checksum, so other
    damage stays unnoticed.

    >>> decode_done(100, "somebody else's")
    []
    """
    head, found, rest = metadata.partition(":")
    size = head.removeprefix(DONE_MARK)
    if not found or not head.startswith(DONE_MARK) or not size.isdecimal():
        return []
    text = rest[: int(size)]
    if rest[int(size) : int(size) + 1] != DONE_END:
        return []
    try:
        packed = base64.b85decode(text)
        bits = packed[1:] if packed[:1] == b"b" else _inflated(packed[1:])
    except (ValueError, binascii.Error, zlib.error):
        return []
    return [
        position + 8 * at + bit for at, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1
    ]


def _inflated(packed: bytes) -> bytes:
    return zlib.decompressobj().decompress(packed, MOST_AHEAD // 8 + 1)
