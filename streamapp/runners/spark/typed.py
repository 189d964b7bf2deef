"""Keys and values as columns for SQL: finds the Arrow type of a serde's values, and decodes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import inspect as mi

from streamapp.errors import SerializationError
from streamapp.runners.spark.packing import record_headers
from streamapp.serdes import (
    AvroSerde,
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    JsonSchemaSerde,
    JsonSerde,
    ListSerde,
    LongSerde,
    ProtobufSerde,
    Serde,
    ShortSerde,
    StringSerde,
    UUIDSerde,
)
from streamapp.serdes.avro_schema import Parsed, kind_of, parse, unnulled
from streamapp.serdes.framing import Framing
from streamapp.serdes.models import is_model, plain_of, record_shape
from streamapp.serdes.types import bare, excerpt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["arrow_type", "typed"]

_HEADERS = "headers"
MOMENT = pa.timestamp("us", tz="UTC")
_PRIMITIVES: dict[type, pa.DataType] = {
    StringSerde: pa.string(),
    LongSerde: pa.int64(),
    IntegerSerde: pa.int32(),
    ShortSerde: pa.int16(),
    DoubleSerde: pa.float64(),
    FloatSerde: pa.float32(),
    BooleanSerde: pa.bool_(),
    UUIDSerde: pa.string(),
    BytesSerde: pa.binary(),
}
_SCALARS: dict[type, pa.DataType] = {
    mi.BoolType: pa.bool_(),
    mi.IntType: pa.int64(),
    mi.FloatType: pa.float64(),
    mi.StrType: pa.string(),
    mi.BytesType: pa.binary(),
    mi.DateTimeType: MOMENT,
    mi.DateType: pa.date32(),
}
_AVRO: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "timestamp-millis": MOMENT,
    "timestamp-micros": MOMENT,
    "date": pa.date32(),
    "uuid": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_MOST_DIGITS = 38
"""The most digits of a decimal in Spark."""


def arrow_type(serde: Serde[Any]) -> pa.DataType | None:
    """The Arrow type of the values that a serde reads. None: there is no such type, and SQL sees JSON text.

    >>> arrow_type(JsonSerde(dict[str, int]))
    MapType(map<string, int64>)
    >>> arrow_type(JsonSerde())
    """
    if type(serde) in _PRIMITIVES:
        return _PRIMITIVES[type(serde)]
    if isinstance(serde, ListSerde):
        inner = arrow_type(serde.inner)
        return inner and pa.list_(inner)
    schema = _avro_of(serde) if isinstance(serde, AvroSerde) else None
    if isinstance(serde, JsonSerde | JsonSchemaSerde | AvroSerde | ProtobufSerde) and _has_fields(serde.type):
        shape = record_shape(serde.type) if is_model(serde.type) else serde.type
        if shape is not None:
            return _of_type(mi.type_info(shape), schema, ())
    return None if schema is None else _of_avro(schema, {})


class _Avro(NamedTuple):
    """A part of an Avro schema."""

    parsed: Parsed
    part: Any

    def at(self, part: Any) -> _Avro:
        return _Avro(self.parsed, self.parsed.follow(part))

    @property
    def some(self) -> _Avro:
        """The schema without null, if it is a union of null and one other type."""
        return self.at(unnulled(self.part)[0])


def _avro_of(serde: AvroSerde[Any]) -> _Avro:
    """The schema of the values that a serde reads: without the fields that ``fields`` leaves out."""
    parsed = parse(serde.schema)
    root = parsed.root
    if serde.fields is not None:
        root = {**root, "fields": [each for each in root["fields"] if each["name"] in serde.fields]}
    return _Avro(parsed, root)


def _has_fields(type_: Any) -> bool:
    return type_ is not None and type_ is not dict


def _of_type(info: mi.Type, schema: _Avro | None, outer: tuple[type, ...]) -> pa.DataType | None:
    """``schema`` is the Avro schema of the same values, if there is one. The schema has the digits of decimals, which a
    type does not have. ``outer`` are the classes that contain this type."""
    info, schema = bare(info), schema and schema.some
    kind = None if schema is None else kind_of(schema.part)
    match info:
        case mi.UnionType(types=types):
            some = [each for each in types if not isinstance(each, mi.NoneType)]
            return _of_type(some[0], schema, outer) if len(some) == 1 else None
        case mi.ListType(item_type=item) | mi.VarTupleType(item_type=item) | mi.SetType(item_type=item):
            items = schema.at(schema.part["items"]) if schema and kind == "array" else None
            inner = _of_type(item, items, outer)
            return inner and pa.list_(inner)
        case mi.DictType(key_type=mi.StrType(), value_type=item):
            values = schema.at(schema.part["values"]) if schema and kind == "map" else None
            inner = _of_type(item, values, outer)
            return inner and pa.map_(pa.string(), inner)
        case mi.StructType(array_like=False, tag=None) | mi.DataclassType():
            if info.cls in outer:
                return None
            parts: dict[str, _Avro] = {}
            if schema is not None and kind == "record":
                parts = {each["name"]: schema.at(each["type"]) for each in schema.part["fields"]}
            inside = (*outer, info.cls)
            names = [(each.encode_name, each.type) for each in info.fields]
            return _struct([(name, _of_type(type_, parts.get(name), inside)) for name, type_ in names])
    if type(info) in _SCALARS:
        return _SCALARS[type(info)]
    return None if schema is None else _of_avro(schema, {})


def _of_avro(schema: _Avro, named: dict[str, pa.DataType | None]) -> pa.DataType | None:
    """``named`` has the types of the records that stand before this schema, by their full names; None for a record that
    contains this schema."""
    part = schema.part
    match kind_of(part):
        case "union":
            found = [_of_avro(schema.at(each), named) for each in part if each != "null"]
            return found[0] if len(found) == 1 else None
        case "decimal":
            digits = part["precision"]
            return pa.decimal128(digits, part.get("scale") or 0) if 0 < digits <= _MOST_DIGITS else None
        case "record":
            name = part["name"]
            if name not in named:
                named[name] = None
                fields = [(each["name"], _of_avro(schema.at(each["type"]), named)) for each in part["fields"]]
                named[name] = _struct(fields)
            return named[name]
        case "array":
            inner = _of_avro(schema.at(part["items"]), named)
            return inner and pa.list_(inner)
        case "map":
            inner = _of_avro(schema.at(part["values"]), named)
            return inner and pa.map_(pa.string(), inner)
        case kind:
            return _AVRO.get(kind)


def _struct(fields: list[tuple[str, pa.DataType | None]]) -> pa.DataType | None:
    if not fields or any(type is None for _, type in fields):
        return None
    return pa.struct([(name, type) for name, type in fields if type is not None])


@dataclass(frozen=True)
class _Decoder:
    """Decodes ``key`` and ``value`` with their serdes, in executors; drops ``headers``, and keeps other columns."""

    key_serde: Serde[Any]
    value_serde: Serde[Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        convert = {"key": _converter(self.key_serde), "value": _converter(self.value_serde)}
        for batch in batches:
            raw = {name: batch.column(name).to_pylist() for name in convert}
            if _HEADERS in batch.schema.names:
                raw = self._joined(raw, record_headers(batch.column(_HEADERS)))
            names = [name for name in batch.schema.names if name != _HEADERS]
            columns = [convert[name](raw[name]) if name in convert else batch.column(name) for name in names]
            yield pa.RecordBatch.from_arrays(columns, names)

    def _joined(self, raw: dict[str, list[Any]], headers: Any) -> dict[str, list[Any]]:
        """Keys and values with the frames of their schemas in front. A key or value whose frame is in no header stays
        as it is."""
        if headers is None:
            return raw
        framing = Framing(self.key_serde, self.value_serde)
        records = zip(raw["key"], raw["value"], headers, strict=True)
        joined = [framing.joined(*record)[:2] for record in records]
        return {"key": [key for key, _ in joined], "value": [value for _, value in joined]}


def typed(frame: DataFrame, key_serde: Serde[Any], value_serde: Serde[Any]) -> DataFrame:
    """The frame with ``key`` and ``value`` read by their serdes: strings, numbers or structs instead of bytes.

    Values of types that Spark does not have become JSON text. If ``frame`` has a column ``headers``, serdes find ids of
    schemas there; the result does not have this column.
    """
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    serdes = {"key": key_serde, "value": value_serde}
    fields = [
        StructField(field.name, from_arrow_type(arrow_type(serdes[field.name]) or pa.string()))
        if field.name in serdes
        else field
        for field in frame.schema.fields
        if field.name != _HEADERS
    ]
    return frame.mapInArrow(_Decoder(key_serde, value_serde), StructType(fields))


def _converter(serde: Serde[Any]) -> Callable[[list[bytes | None]], pa.Array]:
    read, kind = serde.deserialize, arrow_type(serde)
    plain = type(serde) in _PRIMITIVES and not isinstance(serde, UUIDSerde)

    def convert(column: list[bytes | None]) -> pa.Array:
        values = [None if data is None else read(data) for data in column]
        if kind is None:
            return pa.array([None if v is None else _text(v) for v in values], pa.string())
        try:
            if not plain:
                values = [plain_of(value) for value in values]
                values = msgspec.to_builtins(values, builtin_types=(bytes, datetime, date, Decimal))
            return pa.array(values, kind)
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError, RecursionError) as error:
            raise SerializationError(
                f"SQL has no {kind} for all of these values: {excerpt(error, size=300)}. Read the table's bytes, or "
                "give its serde a type that SQL has"
            ) from error

    return convert


def _text(value: Any) -> str:
    try:
        return msgspec.json.encode(plain_of(value), enc_hook=repr, order="deterministic").decode()
    except Exception:  # digits, keys or levels that JSON does not take, or a class whose repr fails
        return msgspec.json.encode({"$repr": excerpt(value, size=1000)}).decode()
