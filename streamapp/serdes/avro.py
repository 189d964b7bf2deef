"""Avro as Confluent's serializers write it: the id of the schema, then the value. A registry has the schemas."""

from __future__ import annotations

import builtins
import json
import struct
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import inspect as mi

from streamapp._base.counted import counted
from streamapp.errors import ConfigError, SerializationError
from streamapp.serdes.avro_codegen import enums_of, is_flat, make_writer
from streamapp.serdes.avro_reader import make_reader, make_tracer
from streamapp.serdes.avro_schema import (
    Parsed,
    SchemaRefused,
    check_size,
    kind_of,
    meaning_of,
    number_of,
    parse,
    unit_of,
    unnulled,
)
from streamapp.serdes.avro_types import avro_schema_of
from streamapp.serdes.avro_writer import left_out, make_any_writer, unwritable
from streamapp.serdes.base import Serde
from streamapp.serdes.field_path import Misfit, reason
from streamapp.serdes.framing import GUID_BYTES, ID_BYTES, frame_end
from streamapp.serdes.models import check_aliases, is_model, maker_of, plain_of, record_shape, shape_of
from streamapp.serdes.references import check_references, definitions, whole_avro
from streamapp.serdes.registered import Registered, SchemaIdIn, SubjectStrategy
from streamapp.serdes.schema_registry import Schema, SchemaReference, SchemaRegistry
from streamapp.serdes.type_checks import check_avro
from streamapp.serdes.types import (
    KEPT,
    as_plain,
    check_limits,
    excerpt,
    field_types,
    has_limits,
    int_fields,
    is_exact,
    is_immutable,
    omits_defaults,
    parts_of,
    record_fields,
    required_fields,
    takes_all_fields,
)

__all__ = ["AvroSerde", "full_name", "unresolvable"]

T = TypeVar("T")

_FAILED = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
_UNREADABLE = (*_FAILED, msgspec.MsgspecError)
_MOST_TEXT, _MOST_REASON = 1_600, 300
_EXACT = ("null", "boolean", "int", "long", "string", "bytes")
_IMMUTABLE = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")


class AvroSerde(Serde[T]):
    """Values of one Avro schema, as Confluent's serializer writes them.

    The bytes are a byte 0, the schema's id in 4 bytes (big endian), and the value in Avro's binary format. If bytes
    have the id of another schema, this serde asks the registry for that schema. Avro's rules of schema resolution
    (defaults, aliases, promotions) then convert the value to this serde's schema.

    Values of a record schema are dicts. With ``type``, they are objects of this class: a ``msgspec.Struct``, dataclass,
    pydantic model or Faust Record. The class may have fewer fields than the schema. Without ``schema`` the schema
    follows from ``type``. ``fields`` names the fields to read. All other fields are skipped without decoding, which is
    cheaper.

    Avro's timestamps become ``datetime`` objects in UTC, and its dates become ``date`` objects. If ``type`` has an int
    for such a field, the value is the number in the bytes. (A type inside ``type`` cannot have an int there.) A value
    to be written must have every field that has no default in the schema, and no fields that the schema lacks. With
    ``version``, the serde leaves out the fields of its schema that the version lacks, also in nested records.

    - ``registry`` gives the ids (default: the application's registry, ``schema_registry_url``; without one, a
      `LocalSchemaRegistry`).
    - ``version`` is the version of the subject to write with, a number or ``"latest"``. The serde then registers no
      schema. Without ``version``, the serde writes with its own schema, and registers this schema if it is new.
    - ``subject_strategy`` is the rule for the name of the subject: ``topic``, ``record`` or ``topic-record``, as
      Confluent's TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy.
    - ``references`` are schemas of other subjects whose types the schema names.
    - ``schema_id_in="header"`` writes the schema's GUID into a header of the record, and no id before the value.
      `AvroSerde`, `JsonSchemaSerde` and `ProtobufSerde` read both forms.

    Raises `ConfigError` if the schema is not valid, or if ``type`` does not fit the schema. For example, each field of
    ``type`` without a default must be a field of the schema, and one of ``fields`` if they are given.

    >>> schema = {"type": "record", "name": "Flight", "fields": [
    ...     {"name": "carrier", "type": "string"},
    ...     {"name": "delay", "type": ["null", "int"], "default": None}]}
    >>> serde = AvroSerde(schema)
    >>> data = serde.serialize({"carrier": "UA", "delay": 3})
    >>> data[5:]
    b'\\x04UA\\x02\\x06'
    >>> serde.deserialize(data), AvroSerde(schema, fields=["delay"]).deserialize(data)
    ({'carrier': 'UA', 'delay': 3}, {'delay': 3})
    """

    persistent_name = "AvroSerde"
    framed = True

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        registry: SchemaRegistry | None = None,
        type: Any = None,
        fields: Collection[str] | None = None,
        subject: str | None = None,
        subject_strategy: SubjectStrategy = "topic",
        version: int | Literal["latest"] | None = None,
        schema_id_in: SchemaIdIn = "payload",
        references: Sequence[SchemaReference] = (),
    ) -> None:
        if schema is None:
            if type is None:
                raise ConfigError("AvroSerde needs a schema, or a type that the schema follows from")
            check_aliases(type)
            schema = avro_schema_of(shape_of(type))
        given = schema = _as_json(schema)
        if references:
            others = definitions(check_references(references))
            schema = whole_avro(schema, {name: _as_json(each) for name, each in others.items()})
        self.schema: Any = schema
        self.type = type
        self.fields: tuple[str, ...] | None = None if fields is None else tuple(fields)
        self._model = type if is_model(type) else None
        struct = None if self._model is not None else type
        self._struct = struct
        self._attributes = None if struct is None else record_fields(struct)
        self._ints = frozenset() if self._attributes is None else int_fields(struct)
        self._parsed = _parsed(_as_json(schema), self._ints)
        self._own = _without_logical(self.schema, self._ints)
        self._name = (
            self._own["name"] if isinstance(self._own, dict) and "name" in self._own else "the schema"
        )
        self.registered: Registered = Registered(
            given,
            "AVRO",
            full_name(self.schema),
            registry,
            subject_strategy,
            version,
            subject,
            schema_id_in,
            references,
            whole=self.schema,
        )
        self.header_bytes: int = GUID_BYTES if schema_id_in == "header" else 0
        self._kept = self._kept_fields()
        if type is not None:
            check_avro(self._own, type)
        self._types = None if self._attributes is None else field_types(struct)
        self._limited = struct is not None and has_limits(mi.type_info(struct))
        self._omits = struct is not None and omits_defaults(mi.type_info(struct))
        whole = version is None and fields is None
        self.exact: builtins.type | None = _exact(self._own, struct, self._attributes) if whole else None
        self._readers: dict[bytes, Callable[[bytes], Any]] = {}
        self._written: dict[bytes, Parsed] = {}
        self._tracers: dict[bytes, Callable[[bytes], Misfit | None]] = {}
        self._header = b""
        self._write_any = make_any_writer(self._parsed)
        self._write = self._writer(self._own)
        self.immutable: bool = (
            self.schema in _IMMUTABLE if type is None else struct is not None and is_immutable(struct)
        )

    @property
    def registry(self) -> SchemaRegistry:
        """The serde's own registry, else the application's registry, else a `LocalSchemaRegistry` of this serde
        alone."""
        return self.registered.registry

    @property
    def subject(self) -> str:
        """The name under which the registry keeps the versions of this schema."""
        return self.registered.subject

    def bind(self, topic: str, is_key: bool) -> AvroSerde[T]:
        """A copy whose subject is ``<topic>-key`` or ``<topic>-value``, or another one by ``subject_strategy``."""
        subject = self.registered.subject_for(topic, is_key)
        return _rebuilt(self.registered.schema, self.type, self.fields, self.registered.arguments(subject))

    def serialize(self, value: T) -> bytes:
        header = self._header or self._first_header()
        try:
            return self._write(value, header)
        except (*_FAILED, msgspec.MsgspecError):
            pass
        # The general writer fills in defaults, and its error names the part that does not fit.
        try:
            return self._write_any(self._plain(value), header)
        except (*_FAILED, msgspec.MsgspecError) as error:
            raise SerializationError(
                f"cannot write {excerpt(value)} as {self._name}: {reason(error)}"
            ) from error

    def deserialize(self, data: bytes) -> T:
        read = self._readers.get(data[:5]) or self._reader(data)
        try:
            return read(data)  # type: ignore[no-any-return]
        except _UNREADABLE as error:
            raise self._unreadable(data, str(self._traced(data) or reason(error))) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.registered.schema, self.type, self.fields, self.registered.arguments())

    def _kept_fields(self) -> list[str]:
        """The names of the fields to read, in the order of the schema; empty if the schema is not that of a record."""
        if kind_of(self._own) != "record":
            if self.fields is not None:
                raise ConfigError(f"fields={list(self.fields)} needs the schema of a record")
            return []
        names = [field["name"] for field in self._own["fields"]]
        if unknown := set(self.fields or ()) - set(names):
            raise ConfigError(f"{self._name} has no fields {sorted(unknown)}; it has {names}")
        kept = [
            name
            for name in names
            if (self.fields is None or name in self.fields)
            and (self._attributes is None or name in self._attributes)
        ]
        shape = record_shape(self.type)
        if shape is not None and (missing := required_fields(shape) - set(kept)):
            raise ConfigError(
                f"{self.type.__name__} needs the fields {sorted(missing)}, which are not read from "
                f"{self._name}. Give them defaults, or add them to the schema (and to fields=)."
            )
        return kept

    def _first_header(self) -> bytes:
        """The bytes before each written value. With ``version``, also makes the writer for the schema of this
        version."""
        header, schema = self.registered.written()
        if schema != self.schema:
            with self.registered.usable():
                pinned = _parsed(schema, self._ints)
                self._check_units(pinned.root)
                self._check_writable(pinned)
                self._write_any = make_any_writer(pinned, self._parsed)
                self._write = self._writer(
                    _without_logical(schema, self._ints), left_out(pinned.root, self._parsed, True)
                )
        self._header = header  # comes last: a schema that is refused must be refused for the next value, too
        return self._header

    def _check_units(self, pinned: Any) -> None:
        """Raises `ConfigError` if a field has another unit of time (seconds, for example) in the schema ``pinned``."""
        if not self._ints or kind_of(pinned) != "record":
            return
        own = {field["name"]: field["type"] for field in self._own["fields"] if field["name"] in self._ints}
        for field in (each for each in pinned["fields"] if each["name"] in own):
            name = field["name"]
            ours, theirs = unnulled(own[name])[0], unnulled(field["type"])[0]
            if None not in (meaning_of(ours), meaning_of(theirs)) and unit_of(ours) != unit_of(theirs):
                raise ConfigError(
                    f"the int {name} of {self.type.__name__} has another unit in version {self.registered.version} of "
                    f"{self.subject}: declare {name} as a datetime or time, which the serde converts"
                )

    def _check_writable(self, pinned: Parsed) -> None:
        """Raises `ConfigError` if the schema ``pinned`` fits no object of the type."""
        shape = record_shape(self.type)
        if shape is None:  # a dict may have fields that the serde's own schema lacks
            return
        names = {
            field.encode_name
            for part in parts_of(mi.type_info(shape))
            for field in getattr(part, "fields", ())
        }
        if (why := unwritable(pinned, self._parsed, names)) is not None:
            raise ConfigError(f"it fits no {self.type.__name__}: {why}")

    def _writer(self, schema: Any, left_out: Collection[str] = ()) -> Callable[[Any, bytes], bytes]:
        """A function from values and headers to bytes. ``left_out`` are fields that only the serde's own schema has."""
        if is_flat(schema) and self._attributes is not None and self._types is not None:
            enums = enums_of(schema, self._types)
            names = {field["name"] for field in schema["fields"]}
            # The fast writer ignores attributes of an object that are no fields of the schema. The general writer
            # refuses them.
            if enums is not None and names == self._attributes.keys() - set(left_out):
                return make_writer(schema, self._attributes, enums)
        elif is_flat(schema) and self._struct is None:
            return self._of_model(make_writer(schema, None))
        if self._struct is None:
            return self._of_model(self._write_any)
        return lambda value, header: self._write_any(self._plain(value), header)

    def _of_model(self, write: Callable[[Any, bytes], bytes]) -> Callable[[Any, bytes], bytes]:
        if self._model is None:
            return write
        return lambda value, header: write(plain_of(value, computed=False), header)

    def _plain(self, value: Any) -> Any:
        if self._struct is None:
            if self._model is None:
                return value
            value = plain_of(value, computed=False)  # still with the members of enums
        elif self._limited:
            check_limits(value, self._struct)
        if not self._omits:
            with suppress(TypeError):
                return msgspec.to_builtins(value, builtin_types=KEPT)
        return as_plain(value)  # an object of an unknown class stays: the error of the writer names its place

    def _reader(self, data: bytes) -> Callable[[bytes], Any]:
        """The function that reads bytes with the same frame (the id or GUID of a schema) as ``data``. The function is
        kept for later bytes."""
        end = frame_end(data)
        if not end:
            raise self._unreadable(
                data,
                "they do not begin with a schema id (byte 0, 4 bytes) or GUID (byte 1, 16 bytes). "
                "Is the topic Avro at all?",
            )
        frame = data[:end]
        known = self._readers.get(frame)
        if known is not None:
            return known
        schema = self.registered.writer_of(data)
        try:
            parsed = parse(schema, written=True)
            read = self._made_reader(parsed)
        except (*_FAILED, MemoryError) as error:
            read = _refusing(
                f"it cannot be read from what their schema describes: {_short(error)}; "
                f"{self.registered.unlike(data, schema)}"
            )
        else:
            self._written[frame] = parsed
            read = read if end == ID_BYTES else _behind_guid(read)
        self._readers[frame] = read
        return read

    def _traced(self, data: bytes) -> Misfit | None:
        """The error of unreadable bytes, with the path to the part that is wrong. None if only the type of the serde
        refuses the value."""
        end = frame_end(data)
        written = self._written.get(data[:end])
        if written is None:
            return None
        trace = self._tracers.get(data[:end])
        if trace is None:
            trace = make_tracer(written, self._parsed, self._wanted_fields())
            self._tracers[data[:end]] = trace
        return trace(data[end - ID_BYTES :])

    def _wanted_fields(self) -> list[str] | None:
        return self._kept if kind_of(self._parsed.root) == "record" else None

    def _made_reader(self, written: Parsed) -> Callable[[bytes], Any]:
        fields = self._wanted_fields()
        if self._model is not None:
            read, make = make_reader(written, self._parsed, fields), maker_of(self._model)
            return lambda data: make(read(data))
        if self._struct is None:
            return make_reader(written, self._parsed, fields)
        if self._types is not None and is_flat(self._own) and takes_all_fields(self._struct):
            enums = enums_of(self._own, self._types)
            if enums is not None:
                return make_reader(written, self._parsed, fields, self._struct, self._attributes, enums)
        read, type_ = make_reader(written, self._parsed, fields), self._struct
        return lambda data: msgspec.convert(read(data), type_, builtin_types=KEPT)

    def _unreadable(self, data: bytes, why: str) -> SerializationError:
        cut = why if len(why) <= _MOST_TEXT else f"{why[:_MOST_TEXT]}..."
        return SerializationError(
            f"cannot read {self._name} from {counted(len(data), 'byte')} {excerpt(data)}: {cut}"
        )


def unresolvable(written: Schema, own: Schema) -> str | None:
    """The reason why values written with one Avro schema cannot be read with another; None if they can.

    >>> unresolvable("int", "long"), unresolvable("string", "int") is None
    (None, False)
    """
    try:
        parsed = parse(own)
        names = (
            [field["name"] for field in own["fields"]]  # type: ignore[call-overload,index]
            if kind_of(parsed.root) == "record"
            else None
        )
        make_reader(parse(written, written=True), parsed, names)
    except (*_FAILED, MemoryError) as error:
        return _short(error)
    return None


def _short(error: BaseException) -> str:
    """The text of an error, cut to a bounded length, because the text may quote a schema of any size."""
    text = str(error) if isinstance(error, ValueError) else repr(error)
    return text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}..."


def _exact(schema: Any, struct: Any, attributes: Collection[str] | None) -> type | None:
    """``struct`` if its objects stay equal when they are written to Avro and read back; None otherwise (see
    `Serde.exact`)."""
    if attributes is None or not is_exact(struct) or not is_flat(schema):
        return None
    kinds = {field["name"]: unnulled(field["type"])[0] for field in schema["fields"]}
    # A double is not exact: an int in such a field is read back as a float.
    same = all(kind_of(kind) in _EXACT for kind in kinds.values())
    exact: type = struct
    return exact if same and kinds.keys() == set(attributes) else None


def _rebuilt(
    schema: Any, type_: Any, fields: Collection[str] | None, registered: dict[str, Any]
) -> AvroSerde[Any]:
    return AvroSerde(schema, type=type_, fields=fields, **registered)


def full_name(schema: Any) -> str | None:
    """A named type's name with its namespace."""
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        return None
    name, namespace = schema["name"], schema.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _as_json(schema: Schema) -> Any:
    """The schema as parsed JSON (dicts, lists, strings), in a new object that the caller may change.

    The argument is parsed JSON, a text of JSON, or the name of a type. Raises `ConfigError` for a text of broken JSON,
    for objects that JSON does not have, and for a schema beyond the limits.
    """
    try:
        if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"'):
            return json.loads(schema)
        check_size(schema)
        return json.loads(json.dumps(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"an Avro schema is JSON, got {excerpt(schema)}: {error}") from error


def _parsed(schema: Any, ints: Collection[str]) -> Parsed:
    try:
        return parse(_without_logical(schema, ints))
    except (SchemaRefused, LookupError, TypeError, RecursionError) as error:
        raise ConfigError(f"{excerpt(schema)} is not an Avro schema: {error}") from error


def _behind_guid(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Makes a reader of values behind a GUID from a reader of values behind an id."""
    return lambda data: read(data[GUID_BYTES - ID_BYTES :])


def _refusing(why: str) -> Callable[[bytes], Any]:
    def refuse(data: bytes) -> Any:
        raise ValueError(why)

    return refuse


def _without_logical(schema: Any, names: Collection[str]) -> Any:
    """The schema of a record, without the logical types of the fields with these names, so that their values stay
    numbers."""
    if not names or not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        return schema
    fields = [
        {**field, "type": number_of(field["type"])} if field["name"] in names else field
        for field in schema["fields"]
    ]
    return {**schema, "fields": fields}
