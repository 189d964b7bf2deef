"""The metadata text that a commit stores with each offset: the partition time, and numbers and notes by name.

A restarted task reads this text, and so knows times that no changelog has. A name without a number, such as the id of
the topic or a note about a store (`store_notes`), has the number 0. The format is Kafka Streams'
(``TopicPartitionMetadata``, version 2), so a Java application can go on from the commits of a worker.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from streamapp._base.counted import counted
from streamapp._base.names import NO_TOPIC_ID
from streamapp.broker.leader_epochs import ReadEnd
from streamapp.errors import StreamsError
from streamapp.records import TopicPartition

__all__ = [
    "BACKFILL",
    "CHOSEN",
    "DONE_END",
    "DONE_MARK",
    "METADATA_LIMIT",
    "MOST_METADATA",
    "SHORT_MARK",
    "STREAM_TIME",
    "TOPIC_ID",
    "RememberedTimes",
    "changelog_in",
    "changelog_notes",
    "changelog_number",
    "changelogs_of_agents_in",
    "decode_metadata",
    "encode_metadata",
    "epoch_in",
    "from_outside",
    "marks_of",
    "metadata_of",
    "topic_ids_in",
    "with_epoch",
]

logger: logging.Logger = logging.getLogger(__name__)

BACKFILL = "backfill:"
"""The beginning of the metadata while a backfill on Spark is unfinished. A task that reads this word does not start,
because the changelogs already have state that belongs to later offsets."""

CHOSEN = "chosen offset"
"""The name in the metadata of an offset that an operator has chosen with streamapp's commands."""

TOPIC_ID = "topic id "
"""The beginning of the name under which metadata has the id of its topic. The number of this name means nothing."""

DONE_MARK = "sa1"
"""The beginning of a text that names finished records behind a position (`consumer/done_offsets.py`).

Consumers write this text before the metadata with the id of the topic. So an earlier version of streamapp, which reads
only the beginning, knows the finished records, too."""

DONE_END = "."
"""The end of the text that begins with `DONE_MARK`. The character is nowhere else in the text."""

_CHANGELOG_ID = "changelog id "
"""The beginning of the name under which commits of agents have the id of a changelog."""

_SHORT_ID = "topic id"
"""The name whose number is the short id of the topic, for tasks with so many inputs that whole ids have no room.

All inputs share this name. So the names of all inputs have room together, as Kafka Streams writes them."""

SHORT_MARK = "#"
"""The beginning of a short id among the results of `topic_ids_in`."""

_EPOCH = "leader epoch"
"""The name whose number tells the leader epoch of the last record before the offset."""
_EPOCH_BITS, _GAP_BITS, _CHECK_BITS = 24, 20, 19

STREAM_TIME = ".stream-time"
"""The end of the name under which an operator remembers its stream time."""

METADATA_LIMIT = 4_000
"""The most bytes of metadata. Brokers take 4096 bytes by default (``offset.metadata.max.bytes``)."""

MOST_METADATA = 500_000
"""The most bytes of metadata in a commit with notes.

Brokers write the offsets of a commit as one batch, and refuse more than 1 MiB (``message.max.bytes``)."""

_NOTES_LIMIT = 2_000
"""The most bytes of metadata with notes. A backfill adds its own notes, and needs the room up to `METADATA_LIMIT`."""
SOME_NOTES = "some stores"
"""The last note if others are left out."""
_CHANGELOG = 1 << 62
"""The least number that stands for a changelog. A partition time, the usual number of a note, is smaller."""
_VERSION = 2
_HEAD = struct.Struct(">bq")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_BASE64 = re.compile("[A-Za-z0-9+/]*={0,2}")


def encode_metadata(partition_time: int, remembered: Mapping[str, int]) -> str:
    """The metadata text: Base64 of a version, the partition time in ms, and the names with their numbers.

    >>> decode_metadata(encode_metadata(5, {"store": 7}))
    (5, {'store': 7})
    """
    # The count of the names is written even if it is 0, so that a reader knows where the metadata ends.
    data = bytearray(_HEAD.pack(_VERSION, partition_time) + _INT.pack(len(remembered)))
    for name, value in remembered.items():
        raw = name.encode()
        data += _INT.pack(len(raw)) + raw + _LONG.pack(value)
    return base64.b64encode(bytes(data)).decode()


def metadata_of(topic_id: str | None, *names: str) -> str:
    """The metadata text of an offset with the id of its topic, if known, and further names, but without times.

    >>> topic_ids_in(metadata_of("A1", "agents 7")), metadata_of(None)
    (frozenset({'A1'}), '')
    """
    known = names if topic_id is None else (*names, f"{TOPIC_ID}{topic_id}")
    return encode_metadata(-1, dict.fromkeys(known, 0)) if known else ""


def decode_metadata(text: str) -> tuple[int, dict[str, int]]:
    """The partition time in ms (-1: unknown), and the remembered numbers. Unknown text gives (-1, {}).

    Surplus text at the end is ignored. confluent-kafka reads metadata as a C string, but librdkafka writes no NUL at
    the end, so bytes of other memory may follow.

    >>> decode_metadata(encode_metadata(5, {}) + "f3")
    (5, {})

    Raises `StreamsError` if a backfill of the application is unfinished.
    """
    if text.startswith(BACKFILL):
        raise StreamsError(
            "a backfill of this application has not come to its end, so a part of the state belongs to later offsets. "
            "Repeat the same `streamapp backfill` command, which continues where it stopped. Then start workers"
        )
    return _decoded(text) or (-1, {})


def _decoded(text: str) -> tuple[int, dict[str, int]] | None:
    """The partition time and the remembered numbers. None: the text has another format."""
    letters = _BASE64.match(text)[0]  # type: ignore[index]
    try:
        data = base64.b64decode(letters[: len(letters) // 4 * 4])
        version, partition_time = _HEAD.unpack_from(data)
    except (binascii.Error, struct.error):
        return None
    if version not in (1, _VERSION):
        return None
    try:
        return partition_time, _remembered(data) if version == _VERSION else {}
    except (struct.error, UnicodeDecodeError):
        return partition_time, {}  # Java writes no number of names if there are none


def from_outside(text: str) -> bool:
    """True for the metadata of an offset that another tool has set, such as ``kafka-consumer-groups``.

    Tasks and Kafka Streams (since 2.4) write their format with each offset. Commands of streamapp write `CHOSEN` in the
    same format, and a backfill writes `BACKFILL`. Kafka's own tools write no metadata.

    >>> from_outside(""), from_outside("by hand"), from_outside(encode_metadata(-1, {}))
    (True, True, False)
    """
    return not text.startswith(BACKFILL) and _decoded(text) is None


def topic_ids_in(text: str) -> frozenset[str]:
    """The topic ids in the metadata of an offset, as `marks_of` has them. In a worker's commit, the id of the topic.

    The metadata has an id as a name, ``topic id <id>``, or a short id as the number of the name ``topic id``. The
    result is empty if there is no such name, as in metadata of Kafka Streams and of an unfinished backfill. The result
    leaves out `NO_TOPIC_ID`, which stands for an unknown id. In a consumer's commit, finished records may come first.

    Kafka Streams writes the names of all inputs of a task with each input. So there may be ids of other inputs. The id
    of the topic itself is missing if no worker has committed this input before. Kafka Streams writes the largest of all
    short ids with each input.

    >>> topic_ids_in(encode_metadata(5, {"topic id A1": 0, "store": 7}))
    frozenset({'A1'})
    >>> topic_ids_in("sa13:0RR." + metadata_of("A1"))
    frozenset({'A1'})
    """
    if text.startswith(DONE_MARK):
        text = text.partition(DONE_END)[2]
    known = {} if text.startswith(BACKFILL) else decode_metadata(text)[1]
    named = {name.removeprefix(TOPIC_ID) for name in known if name.startswith(TOPIC_ID)}
    if _SHORT_ID in known:
        named.add(_short_mark(known[_SHORT_ID]))
    return frozenset(named - {NO_TOPIC_ID})


def marks_of(topic_id: str) -> frozenset[str]:
    """The two forms in which metadata may name a topic: its id, and its short id.

    >>> sorted(marks_of("A1"))
    ['#2087450974918854218', 'A1']
    """
    return frozenset((topic_id, _short_mark(_short_id(topic_id))))


def _short_id(topic_id: str) -> int:
    """A number for a topic id, which no other topic of the cluster has. The number is positive, as Java's times are."""
    digest = hashlib.blake2b(topic_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _short_mark(number: int) -> str:
    return f"{SHORT_MARK}{number}"


def changelog_number(topic_id: str) -> int:
    """The number for the id of a changelog, which the note about its store has.

    >>> changelog_number("A1")
    6699136993346242122
    """
    return _short_id(topic_id) | _CHANGELOG


def changelog_in(text: str, beginnings: tuple[str, ...]) -> int | None:
    """The `changelog_number` of the first name that begins with one of ``beginnings``; None if there is none.

    >>> changelog_in(encode_metadata(5, {"store a: rows": changelog_number("A1")}), ("store a: ",))
    6699136993346242122
    """
    partition_time, known = (-1, {}) if text.startswith(BACKFILL) else decode_metadata(text)
    found = (
        number
        for name, number in known.items()
        if name.startswith(beginnings) and number >= _CHANGELOG and number != partition_time
    )
    return next(found, None)


def changelog_notes(ids: Mapping[str, str]) -> tuple[str, ...]:
    """The names under which commits of agents have the ids of changelogs. If there is no room, the last are left out.

    >>> changelogs_of_agents_in(metadata_of("A1", *changelog_notes({"app-seen-changelog": "C1"})))
    {'app-seen-changelog': 'C1'}
    """
    names = [f"{_CHANGELOG_ID}{topic} {topic_id}" for topic, topic_id in ids.items()]
    count = sum(size <= _NOTES_LIMIT // 4 * 3 for size in accumulate(map(_size, names)))
    return tuple(names[:count])


def changelogs_of_agents_in(text: str) -> dict[str, str]:
    """The changelogs in the metadata of an offset of agents, with their ids."""
    known = {} if text.startswith(BACKFILL) else decode_metadata(text)[1]
    named = [name.removeprefix(_CHANGELOG_ID) for name in known if name.startswith(_CHANGELOG_ID)]
    return {topic: topic_id for topic, _, topic_id in (name.partition(" ") for name in named)}


def with_epoch(text: str, tp: TopicPartition, offset: int, end: ReadEnd | None) -> str:
    """The metadata of a committed offset with the leader epoch of the last record before the offset, if there is room.

    >>> tp = TopicPartition("flights", 0)
    >>> text = with_epoch(encode_metadata(5, {"store": 7}), tp, 52, ReadEnd(50, 3))
    >>> epoch_in(text, tp, 52), epoch_in(text, tp, 53), decode_metadata(text)[1]["store"]
    (ReadEnd(offset=50, epoch=3), None, 7)
    """
    decoded = None if end is None else _decoded(text)
    if end is None or decoded is None:
        return text
    gap = offset - end.offset
    if gap >> _GAP_BITS or end.epoch >> _EPOCH_BITS:
        return text
    number = (end.epoch << _GAP_BITS | gap) << _CHECK_BITS | _epoch_check(tp, offset)
    longer = encode_metadata(decoded[0], {**decoded[1], _EPOCH: number})
    return text if len(longer) > METADATA_LIMIT else longer


def epoch_in(text: str, tp: TopicPartition, offset: int) -> ReadEnd | None:
    """The end of the last record before a committed offset, and its leader epoch. None: the metadata has no epoch.

    Kafka Streams copies the number into its own commits, also into those of other inputs. So the number has a check.
    """
    number = None if text.startswith(BACKFILL) else decode_metadata(text)[1].get(_EPOCH)
    if number is None or number % (1 << _CHECK_BITS) != _epoch_check(tp, offset):
        return None
    number >>= _CHECK_BITS
    return ReadEnd(offset - number % (1 << _GAP_BITS), number >> _GAP_BITS)


def _epoch_check(tp: TopicPartition, offset: int) -> int:
    return zlib.crc32(f"{tp} {offset}".encode()) >> (32 - _CHECK_BITS)


def _remembered(data: bytes) -> dict[str, int]:
    remembered: dict[str, int] = {}
    at = _HEAD.size + _INT.size
    for _ in range(_INT.unpack_from(data, _HEAD.size)[0]):
        (length,) = _INT.unpack_from(data, at)
        if length < 0:
            raise struct.error("a name cannot have a negative length")
        name = data[at + _INT.size : at + _INT.size + length].decode()
        at += _INT.size + length
        (remembered[name],) = _LONG.unpack_from(data, at)
        at += _LONG.size
    return remembered


def _size(name: str) -> int:
    """The bytes of a name and its number."""
    return _INT.size + len(name.encode()) + _LONG.size


def _letters(count: int) -> int:
    """The length of a metadata text of so many bytes.

    >>> _letters(_HEAD.size + _INT.size + _size("store")) == len(encode_metadata(5, {"store": 7}))
    True
    """
    return -(-count // 3) * 4


def _fitting(notes: Sequence[str], room: int) -> Sequence[str]:
    """The notes that fit into the metadata, from the first on, if Base64 of them may have ``room`` letters.

    >>> _fitting(["store a: windows", "all stores"], 80), _fitting(["store a: windows", "all stores"], 40)
    (['store a: windows', 'all stores'], ['some stores'])
    """
    left = room // 4 * 3
    sizes = list(map(_size, notes))
    if sum(sizes) <= left:
        return notes
    left -= _size(SOME_NOTES)
    count = sum(size <= left for size in accumulate(sizes))
    return [*notes[:count], SOME_NOTES] if left >= 0 else []


class RememberedTimes:
    """The numbers that a task has to know after a restart and that no changelog has, such as operators' stream times.

    Each commit writes the numbers into the metadata of the task's offsets.
    """

    def __init__(self) -> None:
        self._readers: dict[str, Callable[[], int]] = {}
        self._recalled: dict[str, int] = {}
        self._told = False
        self.may_fall: bool = False
        """True if a number may become smaller. `recall` takes the largest number of all inputs, so each commit then has
        to renew the metadata of all inputs."""

    def remember(self, name: str, read: Callable[[], int], *, may_fall: bool = False) -> int:
        """Registers a number: each commit calls ``read`` and writes the result under this name.

        ``may_fall`` is True for a number that may become smaller. Returns the number that the commit before the start
        of the task has under this name; -1 if there is none. A negative number is not written.
        """
        self._readers[name] = read
        self.may_fall |= may_fall
        return self._recalled.get(name, -1)

    def encode(
        self,
        partition_time: int,
        topic_id: str | None,
        notes: Sequence[str] = (),
        inputs: int = 1,
        topics: str = "",
        changelogs: Mapping[str, int] | None = None,
    ) -> str:
        """The metadata for the offset of one input.

        ``topic_id`` is the id of the input's topic, if known. ``notes`` are the notes about stores (`store_notes`).
        ``inputs`` is the number of inputs of the task. ``topics`` is the note of `topic_notes`, or "". ``changelogs``
        has the `changelog_number` of notes, as far as known. The number of each other note is the partition time:
        Kafka Streams copies the notes into its own commits, with other partition times.

        Kafka Streams writes the names of all inputs with each input, and this text must not be longer than
        `METADATA_LIMIT`, either. So names are left out if there is no room. If the ids of all inputs have no room
        beside the times and the notes, a short id takes the place of the id. Then notes about stores go, from the end,
        and `SOME_NOTES` takes their place. The note of topics goes next. Times go last, from the end. The stream times
        of operators stand at the end. Without its stream time, an operator begins anew after a restart, as in Kafka
        Streams.
        """
        known = self._known()
        bytes_known = _HEAD.size + _INT.size + sum(map(_size, known))

        def room(bytes_id: int, inputs: int) -> int:
            """The letters for notes. A note about a store has two forms: for inputs whose records reach the store, and
            for other inputs."""
            left = METADATA_LIMIT - _letters(bytes_known + bytes_id * inputs)
            return min(_NOTES_LIMIT - _letters(bytes_known + bytes_id), left // 2)

        own: dict[str, int] = {} if topic_id is None else {f"{TOPIC_ID}{topic_id}": 0}
        bytes_id = sum(map(_size, own))
        space, short = room(bytes_id, inputs), room(_size(_SHORT_ID), 1)
        of_topics = _letters(_size(topics)) if topics else 0
        of_all = of_topics + _letters(sum(map(_size, notes)))
        if topic_id is not None and (
            _letters(bytes_known + bytes_id * inputs) > METADATA_LIMIT
            or any(space < wanted <= short for wanted in (of_topics, of_all))
        ):
            own, space = {_SHORT_ID: _short_id(topic_id)}, short
        chosen = [topics] if topics and of_topics <= space else []
        chosen = [*_fitting(notes, space - _letters(sum(map(_size, chosen)))), *chosen]
        numbers = dict.fromkeys(chosen, max(partition_time, 0))
        numbers.update({note: number for note, number in (changelogs or {}).items() if note in numbers})
        return encode_metadata(partition_time, known | own | numbers)

    def _known(self) -> dict[str, int]:
        """The numbers that fit into the metadata beside a short id, first those that no later record sets right."""
        known = {name: time for name, read in self._readers.items() if (time := read()) >= 0}
        left = METADATA_LIMIT // 4 * 3 - _HEAD.size - _INT.size - _size(_SHORT_ID)
        if sum(map(_size, known)) <= left:
            return known
        ordered = sorted(known, key=lambda name: name.endswith(STREAM_TIME))
        count = sum(size <= left for size in accumulate(map(_size, ordered)))
        if not self._told:
            self._told = True
            logger.warning(
                "a sub-topology has so many operators with a stream time that offsets have no room for %s. After a "
                "restart, these operators accept late records, as in Kafka Streams: %s",
                counted(len(ordered) - count, "time"),
                ", ".join(name.removesuffix(STREAM_TIME) for name in ordered[count:]),
            )
        return {name: known[name] for name in ordered[:count]}

    def recall(self, metadata: str) -> int:
        """Takes the metadata of one input's committed offset, and returns the partition time in ms, or -1."""
        partition_time, known = decode_metadata(metadata)
        for name, time in known.items():
            self._recalled[name] = max(time, self._recalled.get(name, -1))
        return partition_time
