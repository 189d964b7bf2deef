"""Values as text, and back: each text that a command or an answer shows can be given to the next one."""

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
from streamapp.serdes.avro import AvroSerde
from streamapp.serdes.avro_schema import Parsed, kind_of, parse
from streamapp.serdes.base import Serde
from streamapp.serdes.field_path import Misfit, item_part, key_part
from streamapp.serdes.json_values import to_json
from streamapp.serdes.lists import ListSerde
from streamapp.serdes.models import is_model, maker_of
from streamapp.serdes.primitives import (
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UUIDSerde,
)
from streamapp.serdes.protobuf import ProtobufSerde
from streamapp.serdes.types import excerpt
from streamapp.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

__all__ = ["as_document", "parse_text", "serde_name", "text_form"]

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


def text_form(serde: Serde[Any] | None) -> str:
    """The form of a value as text: ``string``, ``integer``, ``double``, ``uuid``, ``hex`` or ``json``.

    >>> text_form(LongSerde())
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


def as_document(serde: Serde[Any] | None, value: Any) -> Any:
    """A value as JSON, in the form that `parse_text` reads. Bytes of a `BytesSerde` are hex. All other values are as in
    `to_json`, so bytes do not look like text."""
    if isinstance(value, Windowed) and isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        return {"key": as_document(serde.inner, value.key), "start": value.start, "end": value.end}
    if isinstance(value, list) and isinstance(serde, ListSerde):
        return [as_document(serde.inner, item) for item in value]
    return value.hex() if isinstance(value, bytes) and text_form(serde) == "hex" else to_json(value)


def parse_text(serde: Serde[Any] | None, text: str) -> tuple[Any, bytes]:
    """The value of a text in the form of `text_form`, and the bytes of the value. Without a serde, the text is hex.
    Raises any exception for a text that has no value, because a serde of the application may raise anything.

    >>> parse_text(LongSerde(), "258")
    (258, b'\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02')
    """
    kind = text_form(serde)
    if kind == "json":
        assert serde is not None
        return _fitting(serde, json.loads(text))
    value = _plain(kind, text)
    return value, value if serde is None else serde.serialize(value)


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


def _plain(kind: str, text: str) -> Any:
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
    """The value of a JSON document, and its bytes. The function first takes marks (`_MARKS`) for content of the value.
    If such a value does not fit, the function replaces the marks."""
    try:
        value = _from_json(serde, document)
        return value, serde.serialize(value)
    except Exception:
        unmarked = _unmarked(document)
        if unmarked == document:
            raise
    value = _from_json(serde, unmarked)
    return value, serde.serialize(value)


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


def _from_json(serde: Serde[Any], document: Any) -> Any:
    """The value of JSON: a serde with a type gets an object of its type, a windowed serde gets a `Windowed`."""
    match serde:
        case TimeWindowedSerde() | SessionWindowedSerde():
            return _windowed(serde, document)
        case ListSerde():
            return [None if item is None else _inner_from_json(serde.inner, item) for item in document]
        case ProtobufSerde(type=None):
            from google.protobuf.json_format import ParseDict

            return ParseDict(document, serde.message())
        case AvroSerde(type=None):
            return _avro_value(serde, document)
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
    match text_form(serde):
        case "hex":
            return bytes.fromhex(document)
        case "uuid":
            return UUID(document)
        case "json":
            return _from_json(serde, document)
    return document


def _avro_value(serde: AvroSerde[Any], document: Any) -> Any:
    """The value for a document. If the serde can write the document, the document is the value. In any other document,
    times, decimals and UUIDs are texts."""
    try:
        serde.serialize(document)
    except SerializationError:
        return _of_avro(parsed := parse(deepcopy(serde.schema)), parsed.root, document)
    return document


def _of_avro(parsed: Parsed, schema: Any, document: Any) -> Any:
    """The value for a document, which is the JSON of this value. The schema gives the classes of the value's parts.

    Raises `ValueError` for a part of another class, an unknown field or symbol, and a field that is missing. Numbers
    out of range pass, and the serde refuses them.
    """
    schema = parsed.follow(schema)
    match kind_of(schema):
        case "union":
            branches = [branch for branch in schema if branch != "null"]
            if document is None and len(branches) < len(schema):
                return None
            if len(branches) == 1:  # an error then names the part, and not only the union
                return _of_avro(parsed, branches[0], document)
            for branch in branches:
                with suppress(ValueError):
                    return _of_avro(parsed, branch, document)
            raise ValueError(f"{excerpt(document)} fits no branch of {excerpt(schema)}")
        case "record":
            given = msgspec.convert(document, dict[str, Any])
            kinds = {field["name"]: field["type"] for field in schema["fields"]}
            required = {field["name"] for field in schema["fields"] if "default" not in field}
            if unknown := given.keys() - kinds.keys():
                raise ValueError(f"the schema has no fields {sorted(unknown)}")
            if missing := required - given.keys():
                raise ValueError(f"the fields {sorted(missing)} are missing")
            return {name: _inside(parsed, kinds[name], item, name) for name, item in given.items()}
        case "array":
            listed = msgspec.convert(document, list[Any])
            return [
                _inside(parsed, schema["items"], item, item_part(place)) for place, item in enumerate(listed)
            ]
        case "map":
            items = msgspec.convert(document, dict[str, Any]).items()
            return {name: _inside(parsed, schema["values"], item, key_part(name)) for name, item in items}
        case "enum":
            if document not in schema["symbols"]:
                raise ValueError(f"{excerpt(document)} is none of the symbols {excerpt(schema['symbols'])}")
            return document
        case kind:
            wanted = _AVRO.get(kind, str)
            if wanted is bytes and not isinstance(document, bytes):
                raise ValueError(f'expected {{"$base64": ...}}, got {excerpt(document)}')
            return msgspec.convert(document, wanted)


def _inside(parsed: Parsed, schema: Any, document: Any, part: str) -> Any:
    """As `_of_avro`, for a part of a document. The error names the path to the part."""
    try:
        return _of_avro(parsed, schema, document)
    except ValueError as error:
        parts = error.parts if isinstance(error, Misfit) else ()
        raise Misfit(error.why if isinstance(error, Misfit) else str(error), [part, *parts]) from error
