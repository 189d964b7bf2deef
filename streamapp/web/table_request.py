"""Parses the parameters and record keys in the URLs of tables. `BadParameter` refuses wrong values."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from streamapp.records import TopicPartition
from streamapp.serdes.value_texts import serde_name, text_form
from streamapp.web.keys import parse_key
from streamapp.web.problem import BadParameter
from streamapp.web.view_source import TableInfo

__all__ = [
    "DEFAULT_LIMIT",
    "MAX_LIMIT",
    "MAX_TIME",
    "Position",
    "Query",
    "TypedKey",
    "family",
    "parse_partitions",
    "parse_query",
    "parse_stale",
]

DEFAULT_LIMIT, MAX_LIMIT = 100, 1_000
MAX_TIME = 2**63 - 1
_CURSOR_VERSION = 1
_POSITION = "position"
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
_ONE_POSITION = re.compile(r"(.{1,249})-([0-9]{1,9}):([0-9]{1,19})")

T = TypeVar("T")

_TABLE_PARAMETERS = {
    "key_value": {"from", "to", "prefix", "limit", "cursor", "newest"},
    "window": {"from", "to", "limit", "cursor", "newest"},
    "session": {"from", "to", "limit", "cursor", "newest"},
    "versioned": set[str](),
}
_KEY_PARAMETERS = {
    "key_value": set[str](),
    "window": {"from", "to", "limit", "cursor"},
    "session": {"from", "to", "limit", "cursor"},
    "versioned": {"as_of", "from", "to", "limit", "cursor"},
}


class TypedKey(NamedTuple):
    """A key as an object and as bytes."""

    value: Any
    data: bytes


class Position(NamedTuple):
    """The position of an entry in a listing. Listings are in the order of these fields.

    ``time`` is the start of a window, the end of a session, or the timestamp of a version, in ms since 1970.
    Key-value tables have 0, so their order is the order of the key bytes. ``n`` distinguishes several rows of a store
    with the same key and start.
    """

    time: int
    key: bytes
    start: int = 0
    partition: int = 0
    n: int = 0

    def cursor(self) -> str:
        """The position as text for a URL, which `parse_cursor` reads.

        >>> Position.parse_cursor(Position(5, b"JFK").cursor())
        Position(time=5, key=b'JFK', start=0, partition=0, n=0)
        """
        fields = [_CURSOR_VERSION, base64.b64encode(self.key).decode(), self.time, *self[2:]]
        return (
            base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode().rstrip("=")
        )

    @classmethod
    def parse_cursor(cls, text: str) -> Position:
        try:
            fields = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            version, key, *rest = msgspec.json.decode(fields, type=tuple[int, bytes, int, int, int, int])
            if version != _CURSOR_VERSION or not all(-MAX_TIME <= n <= MAX_TIME for n in rest):
                raise ValueError("unknown form")
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise BadParameter(
                "cursor", "the cursor cannot be read: pass the cursor of the page before, unchanged"
            ) from error
        time, start, partition, n = rest
        return cls(time, key, start, partition, n)


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of one listing, of a table or of one key. Bounds are inclusive; times are in ms since 1970."""

    key: TypedKey | None = None
    low: TypedKey | None = None
    high: TypedKey | None = None
    prefix: TypedKey | None = None
    time_from: int = 0
    time_to: int = MAX_TIME
    as_of: int | None = None
    limit: int = DEFAULT_LIMIT
    after: Position | None = None
    newest: bool = False
    at_least: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The positions that inputs must have reached: partition of a topic -> the next offset."""


def family(table: TableInfo) -> str | None:
    """The family of a table: key_value, window, session or versioned. None: the table is an operator's buffer, which
    cannot be read."""
    shape = table.kind.shape
    return None if shape is None else shape.family


def parse_query(table: TableInfo, parameters: Mapping[str, str], key: str | None = None) -> Query:
    """The query of a URL's parameters, and of the key in its path. Raises `BadParameter`."""
    at_least = _take(parameters, _POSITION, _positions) or {}
    for tp in at_least:
        if tp.topic not in table.inputs:
            raise BadParameter(
                _POSITION,
                f"no task with {table.name} reads {tp.topic}, so its position says nothing: name one of "
                f"{', '.join(table.inputs)}",
            )
    parameters = {name: text for name, text in parameters.items() if name != _POSITION}
    kind = family(table)
    if kind is None:
        raise BadParameter(
            "name",
            f"{table.name} ({table.kind}) is the buffer of an operator and cannot be read: ask another table",
        )
    allowed = (_TABLE_PARAMETERS if key is None else _KEY_PARAMETERS)[kind]
    _refuse_unknown(table, kind, parameters, allowed, key)
    keyed = kind == "key_value"
    low = _take(parameters, "from", lambda text, name: _key(table, text, name)) if keyed else None
    high = _take(parameters, "to", lambda text, name: _key(table, text, name)) if keyed else None
    prefix = _take(parameters, "prefix", lambda text, name: _prefix(table, text, name))
    if prefix is not None and (low or high):
        raise BadParameter("prefix", "prefix cannot be combined with from and to: use one of them")
    time_from = None if keyed else _take(parameters, "from", _time)
    time_to = None if keyed else _take(parameters, "to", _time)
    if time_from is not None and time_to is not None and time_from > time_to:
        raise BadParameter(
            "to", f"to={time_to} is before from={time_from}: exchange them", example=str(time_from)
        )
    as_of = _take(parameters, "as_of", _time)
    if as_of is not None and len(parameters) > 1:
        raise BadParameter("as_of", "as_of asks for one version: remove the other parameters")
    newest = _take(parameters, "newest", _flag) or False
    if newest and parameters.keys() - {"newest", "limit"}:
        raise BadParameter("newest", "newest can only be combined with limit: remove the other parameters")
    return Query(
        key=None if key is None else _key(table, key, "key"),
        low=low,
        high=high,
        prefix=prefix,
        time_from=0 if time_from is None else time_from,
        time_to=MAX_TIME if time_to is None else time_to,
        as_of=as_of,
        limit=_take(parameters, "limit", _limit) or DEFAULT_LIMIT,
        after=_take(parameters, "cursor", lambda text, _: Position.parse_cursor(text)),
        newest=newest,
        at_least=at_least,
    )


def parse_stale(parameters: Mapping[str, str]) -> bool:
    """True if the caller accepts an answer that may be out of date (``stale=true``, KIP-535). Raises `BadParameter`."""
    return _take(parameters, "stale", _flag) or False


def parse_partitions(table: TableInfo, parameters: Mapping[str, str]) -> frozenset[int] | None:
    """The partitions in ``partitions=1,3``, for which this worker must not ask others.

    None: the whole table is asked for.
    """

    def parse(text: str, parameter: str) -> frozenset[int]:
        known = {str(partition): partition for partition in table.owners}
        if not all(each in known for each in text.split(",")):
            raise BadParameter(
                parameter,
                f"{parameter}={text!r:.40}: expected partitions of {table.name}, and there are {len(known)}",
                example="0,2",
            )
        return frozenset(known[each] for each in text.split(","))

    return _take(parameters, "partitions", parse)


def _take(parameters: Mapping[str, str], name: str, parse: Callable[[str, str], T]) -> T | None:
    text = parameters.get(name)
    return None if text is None else parse(text, name)


def _refuse_unknown(
    table: TableInfo, kind: str, parameters: Mapping[str, str], allowed: set[str], key: str | None
) -> None:
    if kind == "versioned" and key is None:
        raise BadParameter(
            "key", f"{table.name} is versioned: give a key", example=f"/tables/{table.name}/KEY"
        )
    for name in parameters:
        if name not in allowed:
            what = f"a key of {table.name} ({kind})" if key is not None else f"{table.name} ({kind})"
            takes = ", ".join(sorted({*allowed, _POSITION, "stale"}))  # of all kinds of tables
            raise BadParameter(name, f"unknown parameter {name!r}: {what} takes {takes}")


def _key(table: TableInfo, text: str, parameter: str) -> TypedKey:
    return TypedKey(*parse_key(table.key_serde, text, parameter))


def _prefix(table: TableInfo, text: str, parameter: str) -> TypedKey:
    if text_form(table.key_serde) not in ("string", "hex"):
        raise BadParameter(
            parameter,
            f"prefix is only for keys of type string or bytes. The keys of {table.name} are "
            f"{serde_name(table.key_serde)}: use from and to",
        )
    return _key(table, text, parameter)


def _limit(text: str, parameter: str) -> int:
    if not _WHOLE_NUMBER.fullmatch(text) or not 1 <= int(text) <= MAX_LIMIT:
        raise BadParameter(
            parameter, f"limit={text!r:.20}: expected 1 to {MAX_LIMIT}", example=str(DEFAULT_LIMIT)
        )
    return int(text)


def _positions(text: str, parameter: str) -> dict[TopicPartition, int]:
    """Positions as ``flights-2:8312,flights-3:90``, in the form of the field ``positions`` of answers."""
    found = {}
    for each in text.split(","):
        match = _ONE_POSITION.fullmatch(each)
        if match is None:
            raise BadParameter(
                parameter,
                f"{parameter}={each!r:.80}: expected topic-partition:offset, joined by commas",
                example="flights-2:8312",
            )
        found[TopicPartition(match[1], int(match[2]))] = int(match[3])
    return found


def _flag(text: str, parameter: str) -> bool:
    if text not in ("true", "false"):
        raise BadParameter(parameter, f"{parameter}={text!r:.20}: expected true or false", example="true")
    return text == "true"


def _time(text: str, parameter: str) -> int:
    """A time in milliseconds since 1970, from such a number or from ISO 8601. A time without an offset is UTC."""
    try:
        if _WHOLE_NUMBER.fullmatch(text) and abs(int(text)) <= MAX_TIME:
            return int(text)
        # In a query string, "+" means a space. The "+" of an offset that is not escaped arrives as a space.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise BadParameter(
            parameter,
            f"{parameter}={text!r:.40}: expected milliseconds since 1970, or ISO 8601",
            example="2013-12-01T00:00:00Z",
        ) from error
