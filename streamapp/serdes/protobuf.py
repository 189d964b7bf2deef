"""A serde for Protobuf, for classes that protoc generates or for Python types such as dataclasses.

As with Confluent's serde, the id of the schema stands before the message, or in a header.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypeVar, get_origin

import msgspec
from msgspec import inspect as mi

from streamapp._base.counted import counted
from streamapp._base.extras import require_schemas
from streamapp.errors import ConfigError, SchemaRegistryError, SerializationError
from streamapp.serdes.base import Serde
from streamapp.serdes.framing import GUID_BYTES, frame_end
from streamapp.serdes.models import is_model, maker_of, plain_of, record_shape
from streamapp.serdes.proto_outline import message_at, renumbered
from streamapp.serdes.proto_text import proto_text
from streamapp.serdes.protobuf_derived import derived
from streamapp.serdes.protobuf_types import Copier, Unlike, copier_of, filler_of, named_floats
from streamapp.serdes.registered import Registered, SchemaIdIn, SubjectStrategy
from streamapp.serdes.schema_registry import Schema, SchemaReference, SchemaRegistry
from streamapp.serdes.type_checks import check_message
from streamapp.serdes.types import KEPT, as_plain, check_limits, excerpt, has_limits, omits_defaults

__all__ = ["ProtobufSerde"]

T = TypeVar("T")

_MOST_INDEXES = 32


class ProtobufSerde(Serde[T]):
    """Protobuf of one message: a byte 0, the schema's id in 4 bytes, the place of the message in its file, the message.

    ``message`` is a class that ``protoc`` has generated. Values are messages of this class. With ``type``, values are
    objects of this class: ``dict`` (only with ``message``), a ``msgspec.Struct``, dataclass, pydantic model or Faust
    Record. Their fields have the names of the .proto file. With ``type``, the serde also writes values that already are
    messages.

    Without ``message`` the schema follows from the type. The fields have the numbers 1, 2 ... in the order of the type,
    unless a `FieldNumber` gives another. Suppose that another version of the subject gives a field another number or
    Protobuf type, or gives its number to another field. If this version is the latest one in a registry with a server,
    a write raises `SchemaRegistryError` and registers nothing. Bytes of this version raise `SerializationError`.

    Bytes of other versions of the message can be read: as always in Protobuf, unknown fields are ignored, and missing
    fields have their default. Bytes of a message with another name raise `SerializationError`.

    The serde registers the text of the .proto file, and of each imported file with the import's path as subject.
    ``google/protobuf/*``, ``google/type/*`` and ``confluent/*`` are not registered, because registries have them.
    ``registry``, ``subject_strategy``, ``version`` and ``schema_id_in`` mean the same as in `AvroSerde`. Needs the
    extra ``schemas``.

    >>> from google.protobuf.duration_pb2 import Duration
    >>> serde = ProtobufSerde(Duration, type=dict)
    >>> serde.serialize(Duration(seconds=90))[5:]
    b'\\x00\\x08Z'
    >>> import msgspec
    >>> class Order(msgspec.Struct):
    ...     id: str
    ...     cents: int = 0
    >>> serde = ProtobufSerde(type=Order)
    >>> serde.deserialize(serde.serialize(Order("o-1", 995))), serde.schema.split()[-9:-1]
    (Order(id='o-1', cents=995), ['string', 'id', '=', '1;', 'int64', 'cents', '=', '2;'])
    """

    persistent_name = "ProtobufSerde"
    framed = True

    def __init__(
        self,
        message: Any = None,
        *,
        type: Any = None,
        registry: SchemaRegistry | None = None,
        subject: str | None = None,
        subject_strategy: SubjectStrategy = "topic",
        version: int | Literal["latest"] | None = None,
        schema_id_in: SchemaIdIn = "payload",
    ) -> None:
        require_schemas("google.protobuf")
        self._given = message
        self._derived = message is None and type is not None
        self._shape: Any = None
        self._make: Callable[[Any], Any] | None = None
        self._copier: Copier | None
        self._fill: Callable[[Any], None] | None = None
        if self._derived:
            message, self._copier = derived(type)
            descriptor = message.DESCRIPTOR
        else:
            descriptor = getattr(message, "DESCRIPTOR", None)
            if descriptor is None or not hasattr(message, "FromString"):
                raise ConfigError(
                    f"ProtobufSerde takes a class that protoc has generated, or a type=, not {message!r}"
                )
            self._shape = record_shape(type)
            if self._shape is not None:
                check_message(descriptor, type)
            elif type is not None and type is not dict:
                raise ConfigError(
                    "type= of a ProtobufSerde is dict, a Struct, dataclass, pydantic model or Faust Record, "
                    f"not {type!r}"
                )
            self._make = maker_of(type) if is_model(type) else None
            self._copier = copier_of(message, type) if self._shape is type is not None else None
            self._fill = None if self._shape is None else filler_of(self._shape)
        self.message: Any = message
        self.type: Any = type
        self._class: Any = get_origin(type) or type
        record = type is not None and type is not dict and not is_model(type)
        self._limited = record and has_limits(mi.type_info(type))
        self._omits = record and omits_defaults(mi.type_info(type))
        text = proto_text(descriptor.file) if version is None or self._derived else ""
        self.schema: str = text if version is None else ""
        self._full_name: str = descriptor.full_name
        references = _imports(descriptor.file) if version is None else ()
        self.registered: Registered = Registered(
            self.schema,
            "PROTOBUF",
            self._full_name,
            registry,
            subject_strategy,
            version,
            subject,
            schema_id_in,
            references,
            objection=_objection_of(text) if self._derived else None,
        )
        self._path = _path(descriptor)
        self._indexes = _indexes(self._path)
        self.header_bytes: int = GUID_BYTES + len(self._indexes) if schema_id_in == "header" else 0
        self._parse: Callable[[bytes], Any] = message.FromString
        self._own = b""
        self._known: dict[bytes, bool] = {}
        self.immutable: bool = False

    @property
    def registry(self) -> SchemaRegistry:
        """The serde's own registry, else the application's registry, else a `LocalSchemaRegistry` of this serde
        alone."""
        return self.registered.registry

    @property
    def subject(self) -> str:
        """The name under which the registry keeps the versions of this schema."""
        return self.registered.subject

    def bind(self, topic: str, is_key: bool) -> ProtobufSerde[T]:
        """A copy whose subject is ``<topic>-key`` or ``<topic>-value``, or another one by ``subject_strategy``."""
        subject = self.registered.subject_for(topic, is_key)
        return _rebuilt(self._given, self.type, self.registered.arguments(subject))

    def serialize(self, value: T) -> bytes:
        header = self._own or self._first_header()
        try:
            message = value if isinstance(value, self.message) else self._message(value)
            return header + message.SerializeToString(deterministic=True)  # type: ignore[no-any-return]
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(
                f"cannot write {excerpt(value)} as {self._full_name}: {error}"
            ) from error

    def deserialize(self, data: bytes) -> T:
        try:
            end = self._body(data)
            message = self._parse(data[end:])
            return message if self.type is None else self._typed(message)  # type: ignore[no-any-return]
        except (SerializationError, SchemaRegistryError):  # the registry's faults are not the record's
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {excerpt(str(error), size=500)}"
            raise self._unreadable(data, why) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self._given, self.type, self.registered.arguments())

    def _first_header(self) -> bytes:
        header, schema = self.registered.written()
        if self.registered.version is not None:
            with self.registered.usable():
                self._path = _path_in(str(schema), self._full_name, self._path)
            self._indexes = _indexes(self._path)
        self._own = header + self._indexes
        return self._own

    def _body(self, data: bytes) -> int:
        """The position behind the indexes. Raises `SerializationError` for another message or moved field numbers."""
        start = frame_end(data)
        if not start or len(data) == start:
            raise self._unreadable(
                data,
                "they do not begin with a schema id (byte 0, 4 bytes) or GUID (byte 1, 16 bytes), and message indexes",
            )
        end = start + 1
        path = [0]
        if data[start] != 0:
            path, end = _read_indexes(data, start)
        header = data[:end]
        if header not in self._known:
            written = self.registered.writer_of(data)
            name = message_at(str(written), path)
            if name != self._full_name:
                raise self._unreadable(
                    data, f"the message is a {name}; {self.registered.unlike(data, written)}"
                )
            if self.registered.objection and (why := self.registered.objection(written)):
                raise self._unreadable(data, f"{why} ({self.registered.unlike(data, written)})")
            self._known[header] = True
        return end

    def _message(self, value: Any) -> Any:
        from google.protobuf.json_format import ParseDict, ParseError

        if self.type is None or (self.type is not dict and not isinstance(value, self._class)):
            wanted = self.message.__name__ if self.type is None else self.type.__name__
            raise SerializationError(f"expected {wanted}, got {excerpt(value)} ({value.__class__.__name__})")
        if self._limited:
            check_limits(value, self.type)
        if self._derived and self._copier is not None:
            return self._copier.write(value)
        if self._copier is not None:
            with suppress(Unlike):
                return self._copier.write(value)
        plain = msgspec.to_builtins(as_plain(value) if self._omits else plain_of(value, computed=False))
        given = {name: item for name, item in plain.items() if item is not None}
        try:
            return ParseDict(given, self.message())
        except ParseError:  # the mapping takes NaN and infinity as text only
            pass
        try:
            return ParseDict(named_floats(self.message.DESCRIPTOR, given), self.message())
        except ParseError as error:
            # The mapping takes the last characters of a time without a time zone for its zone.
            more = "; a Timestamp takes a time with a time zone" if "time data" in str(error) else ""
            raise ParseError(f"{error}{more}") from error

    def _typed(self, message: Any) -> Any:
        if self._copier is not None:
            made = self._copier.read(message)
            if self._limited:
                check_limits(made, self.type)
            return made
        plain = plain_of(message)
        if self._shape is None:
            return plain
        if self._fill is not None:
            self._fill(plain)
        # The dict has the values of JSON: 64-bit numbers as text, bytes in base64. msgspec converts them to the types
        # of the shape.
        typed = msgspec.convert(plain, self._shape, strict=False)
        if self._make is None:
            return typed
        return self._make(msgspec.to_builtins(typed, builtin_types=KEPT))

    def _unreadable(self, data: bytes, why: str) -> SerializationError:
        return SerializationError(
            f"cannot read {self._full_name} from {counted(len(data), 'byte')} {excerpt(data)}: {why}"
        )


def _rebuilt(message: Any, type_: Any, registered: dict[str, Any]) -> ProtobufSerde[Any]:
    # ProtobufSerde takes no references: they follow from the descriptor.
    return ProtobufSerde(
        message, type=type_, **{name: value for name, value in registered.items() if name != "references"}
    )


def _objection_of(text: str) -> Callable[[Schema], str]:
    def objection(other: Schema) -> str:
        try:
            return renumbered(text, str(other))
        except ValueError as error:
            return f"the other schema cannot be compared: {error}"

    return objection


def _imports(file: Any, known: dict[str, SchemaReference] | None = None) -> tuple[SchemaReference, ...]:
    """The files that a file imports, each once, without those of Google and Confluent, which the registry has."""
    known = {} if known is None else known
    found = []
    for each in file.dependencies:
        if each.name.startswith(("google/protobuf/", "google/type/", "confluent/")):
            continue
        if each.name not in known:
            known[each.name] = SchemaReference(each.name, each.name, proto_text(each), _imports(each, known))
        found.append(known[each.name])
    return tuple(found)


def _path(descriptor: Any) -> list[int]:
    """The indexes of a message: the outermost message's index in the file, then the index in each enclosing message."""
    path: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        siblings = descriptor.file.message_types_by_name.values() if parent is None else parent.nested_types
        # Java counts the messages of .proto files. Entries of maps are messages in descriptors only.
        names = [each.full_name for each in siblings if not each.GetOptions().map_entry]
        path.insert(0, names.index(descriptor.full_name))
        descriptor = parent
    return path


def _path_in(schema: str, name: str, own: list[int]) -> list[int]:
    if message_at(schema, own) != name:
        raise ConfigError(
            f"the pinned schema has no message {name} at {own}: its file lacks the message, or has another order"
        )
    return own


def _indexes(path: list[int]) -> bytes:
    """The indexes in Confluent's form: their count, then each index, as zigzag varints. ``[0]`` is a single byte 0."""
    if path == [0]:
        return b"\0"
    return b"".join(_varint(number) for number in (len(path), *path))


def _varint(number: int) -> bytes:
    number <<= 1  # the zigzag form of a number that is not negative
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_indexes(data: bytes, start: int) -> tuple[list[int], int]:
    count, end = _read_varint(data, start)
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError(f"{counted(count, 'message index', 'message indexes')}")
    path = []
    for _ in range(count):
        index, end = _read_varint(data, end)
        path.append(index)
    return path, end


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise ValueError("a message index of more than 5 bytes")
