"""Keys of tables in URLs and in JSON: each form that an answer shows can be given in the next request."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from streamapp.errors import SerializationError
from streamapp.records import Windowed
from streamapp.serdes import (
    AvroSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    ListSerde,
    LongSerde,
    ProtobufSerde,
    Serde,
    SessionWindowedSerde,
    ShortSerde,
    StringSerde,
    TimeWindowedSerde,
    UUIDSerde,
)
from streamapp.serdes.avro_schema import Parsed, kind_of, parse
from streamapp.serdes.models import is_model, maker_of
from streamapp.serdes.types import excerpt
from streamapp.web.problem import BadParameter
from streamapp.web.values import to_json

__all__ = ["key_format", "key_to_json", "parse_key", "serde_name"]

_EXAMPLES = {"string": "JFK", "integer": "42", "double": "0.5", "hex": "00ff1a", "uuid": str(UUID(int=1))}
_MARKS: dict[str, Callable[[str], Any]] = {
    "$base64": lambda text: base64.b64decode(text, validate=True),
    "$float": float,
    "$int": lambda text: int(text, 16),
}
"""Marks of `to_json` -> the value for the text beside the mark."""
_AVRO: dict[str, Any] = {
    "null": None,
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "fixed": bytes,
    "decimal": Decimal,
    "date": date,
    "time-millis": time,
    "time-micros": time,
    "uuid": UUID,
    **{f"{zone}timestamp-{unit}": datetime for zone in ("", "local-") for unit in ("millis", "micros")},
}
"""The classes of Avro's types. All others are strings."""


def key_format(serde: Serde[Any] | None) -> str:
    """The form of a key in a URL: ``string``, ``integer``, ``double``, ``uuid``, ``hex`` or ``json``.

    >>> key_format(LongSerde())
    'integer'
    """
    match serde:
        case StringSerde():
            return "string"
        case LongSerde() | IntegerSerde() | ShortSerde():
            return "integer"
        case DoubleSerde() | FloatSerde():
            return "double"
        case UUIDSerde():
            return "uuid"
        case BytesSerde() | None:
            return "hex"
    return "json"


def key_to_json(serde: Serde[Any] | None, key: Any) -> Any:
    """A key in the form that `parse_key` reads. If bytes are the keys of a table, they are hex. All others are as in
    `to_json`, so a key of bytes does not look like one of text."""
    if isinstance(key, Windowed) and isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        return {"key": key_to_json(serde.inner, key.key), "start": key.start, "end": key.end}
    if isinstance(key, list) and isinstance(serde, ListSerde):
        return [key_to_json(serde.inner, item) for item in key]
    return key.hex() if isinstance(key, bytes) and key_format(serde) == "hex" else to_json(key)


def parse_key(serde: Serde[Any] | None, text: str, parameter: str) -> tuple[Any, bytes]:
    """The key of a URL, and its bytes. Raises `BadParameter`.

    >>> parse_key(LongSerde(), "258", "key")
    (258, b'\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02')
    """
    kind = key_format(serde)
    try:
        if kind == "json":
            assert serde is not None
            return _fitting(serde, json.loads(text))
        key = _plain_key(kind, text)
        return key, key if serde is None else serde.serialize(key)
    except Exception as error:  # a serde of the application may raise anything
        expected = f"expected a key of this table ({serde_name(serde)}), written as {kind}"
        raise BadParameter(
            parameter,
            f"{parameter}={text!r:.80}: {expected}: {error}",
            example=_EXAMPLES.get(kind) or _json_example(serde),
        ) from error


def serde_name(serde: Serde[Any] | None) -> str:
    """The short name of a serde, such as ``string``, ``json`` or ``time_windowed(string)``."""
    if serde is None:
        return "bytes"
    if isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        kind = "time_windowed" if isinstance(serde, TimeWindowedSerde) else "session_windowed"
        return f"{kind}({serde_name(serde.inner)})"
    if isinstance(serde, ListSerde):
        return f"list({serde_name(serde.inner)})"
    return type(serde).__name__.removesuffix("Serde").lower()


def _plain_key(kind: str, text: str) -> Any:
    match kind:
        case "integer":
            return int(text)
        case "double":
            return float(_unmarked(json.loads(text)) if text.startswith("{") else text)
        case "uuid":
            return UUID(text)
        case "hex":
            return bytes.fromhex(text)
    return text


def _fitting(serde: Serde[Any], document: Any) -> tuple[Any, bytes]:
    """The key of a JSON document, and its bytes. First, marks count as content of the key, then as marks."""
    try:
        key = _key_from_json(serde, document)
        return key, serde.serialize(key)
    except Exception:
        unmarked = _unmarked(document)
        if unmarked == document:
            raise
    key = _key_from_json(serde, unmarked)
    return key, serde.serialize(key)


def _unmarked(document: Any) -> Any:
    """The document, with values in the place of their marks (`_MARKS`)."""
    if isinstance(document, list):
        return [_unmarked(item) for item in document]
    if not isinstance(document, dict):
        return document
    if len(document) == 1:
        ((mark, text),) = document.items()
        if mark in _MARKS and isinstance(text, str):
            return _MARKS[mark](text)
    return {name: _unmarked(item) for name, item in document.items()}


def _key_from_json(serde: Serde[Any], document: Any) -> Any:
    """The key of JSON: a serde with a type gets an object of its type, a windowed serde gets a `Windowed`."""
    match serde:
        case TimeWindowedSerde() | SessionWindowedSerde():
            return _windowed(serde, document)
        case ListSerde():
            return [None if item is None else _inner_from_json(serde.inner, item) for item in document]
        case ProtobufSerde(type=None):
            from google.protobuf.json_format import ParseDict

            return ParseDict(document, serde.message())
        case AvroSerde(type=None):
            return _avro_key(serde, document)
    wanted = getattr(serde, "type", None)
    if wanted is None:
        return document
    return maker_of(wanted)(document) if is_model(wanted) else msgspec.convert(document, wanted)


def _windowed(serde: TimeWindowedSerde | SessionWindowedSerde, document: Any) -> Windowed:
    if not isinstance(document, dict) or not {"key", "start"} <= document.keys():
        raise ValueError('give a JSON object with "key", "start" and "end"')
    start = int(document["start"])
    if isinstance(serde, TimeWindowedSerde):
        end = int(document.get("end", start + serde.window_size_ms))
    else:
        end = int(document["end"])
    return Windowed(_inner_from_json(serde.inner, document["key"]), start, end)


def _inner_from_json(serde: Serde[Any], document: Any) -> Any:
    match key_format(serde):
        case "hex":
            return bytes.fromhex(document)
        case "uuid":
            return UUID(document)
        case "json":
            return _key_from_json(serde, document)
    return document


def _avro_key(serde: AvroSerde[Any], document: Any) -> Any:
    """A document that the serde writes, as it is. In any other document, times, decimals and UUIDs are texts."""
    try:
        serde.serialize(document)
    except SerializationError:
        return _of_avro(parsed := parse(deepcopy(serde.schema)), parsed.root, document)
    return document


def _of_avro(parsed: Parsed, schema: Any, document: Any) -> Any:
    """The value of a schema's type, whose JSON is the document. Raises ValueError if there is none."""
    schema = parsed.follow(schema)
    match kind_of(schema):
        case "union":
            for branch in schema:
                with suppress(ValueError):
                    return _of_avro(parsed, branch, document)
            raise ValueError(f"{excerpt(document)} fits no branch of {excerpt(schema)}")
        case "record":
            given = msgspec.convert(document, dict[str, Any])
            kinds = {field["name"]: field["type"] for field in schema["fields"]}
            return {
                name: _of_avro(parsed, kinds[name], item) if name in kinds else item
                for name, item in given.items()
            }
        case "array":
            return [_of_avro(parsed, schema["items"], item) for item in msgspec.convert(document, list[Any])]
        case "map":
            items = msgspec.convert(document, dict[str, Any]).items()
            return {name: _of_avro(parsed, schema["values"], item) for name, item in items}
        case kind:
            wanted = _AVRO.get(kind, str)
            if wanted is bytes and not isinstance(document, bytes):
                raise ValueError(f'expected {{"$base64": ...}}, got {excerpt(document)}')
            return msgspec.convert(document, wanted)


def _json_example(serde: Serde[Any] | None) -> str:
    if isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        return '{"key": "JFK", "start": 0, "end": 3600000}'
    if isinstance(serde, ListSerde):
        return "[]"
    return '{"id": 1}'
