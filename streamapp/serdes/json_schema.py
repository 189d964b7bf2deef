"""A serde for JSON that a JSON Schema checks. As with Confluent's serde, the id of the schema is before the value."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar
from urllib.parse import urljoin

import msgspec
from msgspec import inspect as mi

from streamapp._base.counted import counted
from streamapp._base.extras import require_schemas
from streamapp.errors import ConfigError, SerializationError, StreamsError
from streamapp.serdes.base import Serde
from streamapp.serdes.framing import GUID_BYTES, frame_end
from streamapp.serdes.json import JsonSerde, encoder_of
from streamapp.serdes.json_changes import json_misfit
from streamapp.serdes.json_schema_paths import MOST_PATHS, most_paths
from streamapp.serdes.models import (
    check_aliases,
    from_json,
    is_model,
    is_pydantic,
    plain_of,
    record_shape,
    shape_of,
    writes_aliases,
)
from streamapp.serdes.references import check_references, definitions
from streamapp.serdes.registered import Registered, SchemaIdIn, SubjectStrategy
from streamapp.serdes.schema_registry import Schema, SchemaReference, SchemaRegistry
from streamapp.serdes.type_checks import check_json
from streamapp.serdes.types import excerpt, omits_fields

__all__ = ["JsonSchemaSerde"]

T = TypeVar("T")

_MOST_FRAMES = 1_000
_NO_BASE = "http://streamapp.invalid/"
"""The ``$id`` of a schema that has none. A relative ``$ref`` in the schema begins there."""


class JsonSchemaSerde(Serde[T]):
    """JSON of one schema: a byte 0, the schema's id in 4 bytes big endian, the value as UTF-8.

    Values are those of `JsonSerde` (dicts, lists, text ...), or with ``type`` objects of this class: a
    ``msgspec.Struct``, dataclass, TypedDict, NamedTuple, pydantic model or Faust Record. Without ``schema`` the schema
    follows from the type.

    This serde's schema checks values when they are written and when they are read; a reader does not ask the registry
    for the writer's schema. A value that does not fit raises `SerializationError`. With ``version``, the schema of this
    version checks the values that are written. ``validate=False`` leaves out the checks, which is faster. The checks
    need the extra ``schemas``.

    ``registry``, ``subject_strategy``, ``version`` and ``schema_id_in`` mean the same as in `AvroSerde`. ``references``
    are schemas of other subjects, each with the name by which a ``$ref`` of this schema refers to it.

    Raises `ConfigError` if the schema is not a JSON Schema, or does not fit ``type``. With ``validate=False``, any JSON
    object counts as a JSON Schema.

    >>> import msgspec
    >>> class Flight(msgspec.Struct):
    ...     carrier: str
    ...     delay: int = 0
    >>> serde = JsonSchemaSerde(type=Flight)
    >>> serde.serialize(Flight("UA", 3))[5:]
    b'{"carrier":"UA","delay":3}'
    >>> serde.schema["required"]
    ['carrier']
    """

    persistent_name = "JsonSchemaSerde"
    framed = True

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        type: Any = None,
        validate: bool = True,
        registry: SchemaRegistry | None = None,
        subject: str | None = None,
        subject_strategy: SubjectStrategy = "topic",
        version: int | Literal["latest"] | None = None,
        schema_id_in: SchemaIdIn = "payload",
        references: Sequence[SchemaReference] = (),
    ) -> None:
        if schema is None and type is None:
            raise ConfigError("JsonSchemaSerde needs a schema, or a type that the schema follows from")
        self.schema: Any = _as_json(_derived(type) if schema is None else schema)
        self.type: Any = type
        self.validate: bool = validate
        title = self.schema.get("title") if isinstance(self.schema, dict) else None
        record = title if isinstance(title, str) else None
        self.registered: Registered = Registered(
            self.schema,
            "JSON",
            record,
            registry,
            subject_strategy,
            version,
            subject,
            schema_id_in,
            references,
        )
        self.header_bytes: int = GUID_BYTES if schema_id_in == "header" else 0
        others = definitions(check_references(references))
        self._referenced: dict[str, Any] = {name: _as_json(each) for name, each in others.items()}
        self._name = record or "the JSON Schema"
        self._json: Serde[Any] = _ModelJson(type) if is_model(type) else JsonSerde(type)
        self.immutable: bool = self._json.immutable
        if type is not None:
            check_json(self.schema, type)
        self._read, self._write = self._json.decoder(), self._json.serialize
        self._check = self._check_written = _validator(self.schema, self._referenced) if validate else None
        self._header = b""
        self._unlike: dict[bytes, str] = {}
        """Frame -> the end of the error about unreadable bytes. The registry is asked once, because it may be away."""

    @property
    def registry(self) -> SchemaRegistry:
        """The serde's own registry, else the application's registry, else a `LocalSchemaRegistry` of this serde
        alone."""
        return self.registered.registry

    @property
    def subject(self) -> str:
        """The name under which the registry keeps the versions of this schema."""
        return self.registered.subject

    def bind(self, topic: str, is_key: bool) -> JsonSchemaSerde[T]:
        """A copy whose subject is ``<topic>-key`` or ``<topic>-value``, or another one by ``subject_strategy``."""
        subject = self.registered.subject_for(topic, is_key)
        return _rebuilt(self.schema, self.type, self.validate, self.registered.arguments(subject))

    def serialize(self, value: T) -> bytes:
        header = self._header or self._first_header()
        data = self._write(value)
        if self._check_written is not None:
            try:
                self._check_written(msgspec.json.decode(data))
            except Exception as error:
                raise SerializationError(
                    f"{excerpt(value)} does not fit {self._name} ({self.subject}): "
                    f"{excerpt(str(error), size=500)}"
                ) from error
        return header + data

    def deserialize(self, data: bytes) -> T:
        end = frame_end(data)
        if not end:
            raise SerializationError(
                f"cannot read {self._name} from {counted(len(data), 'byte')} {excerpt(data)}: they do not "
                "begin with a schema id (byte 0, 4 bytes) or GUID (byte 1, 16 bytes). If the topic is JSON without "
                "schema, take JsonSerde"
            )
        try:
            body = data[end:]
            if self._check is not None:
                self._check(msgspec.json.decode(body))
            return self._read(body)  # type: ignore[no-any-return]
        except Exception as error:
            raise self._unreadable(data, error) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.schema, self.type, self.validate, self.registered.arguments())

    def _first_header(self) -> bytes:
        """The bytes before each written value. With ``version=``, the schema of this version checks written values."""
        header, schema = self.registered.written()
        if schema != self.schema and self.validate:
            with self.registered.usable():
                self._check_written = _validator(schema, self._referenced)
                self._check_writable(schema)
        self._header = header  # comes last: a schema that is refused must be refused for the next value, too
        return self._header

    def _check_writable(self, pinned: Any) -> None:
        """Raises `ConfigError` if the schema ``pinned`` allows no object of the type."""
        if pinned is False:
            raise ConfigError("it allows no value")
        shape = record_shape(self.type)
        if shape is None or omits_fields(mi.type_info(shape)) or not isinstance(pinned, dict):
            return
        misfit = json_misfit(self.schema, pinned, formats=False)
        if misfit is not None and misfit.always:
            raise ConfigError(f"it fits no {self.type.__name__}: {misfit.why}")

    def _unreadable(self, data: bytes, error: Exception) -> SerializationError:
        frame = data[: frame_end(data)]
        why = self._unlike.get(frame)
        if why is None:
            if len(self._unlike) > _MOST_FRAMES:
                self._unlike.clear()
            why = self._unlike[frame] = self._unlike_writer(data)
        return SerializationError(
            f"cannot read {self._name} from {counted(len(data), 'byte')} {excerpt(data)}: "
            f"{excerpt(str(error), size=500)}{why}"
        )

    def _unlike_writer(self, data: bytes) -> str:
        """The end of an error about unreadable bytes: the difference from the schema with which they were written."""
        try:
            written = self.registered.writer_of(data)
        except StreamsError as unknown:
            return f"; their schema is not known: {unknown}"
        return "" if written == self.schema else f"; {self.registered.unlike(data, written)}"


class _ModelJson(Serde[Any]):
    """JSON of a pydantic model or a Faust Record."""

    persistent_name = "ModelJson"

    def __init__(self, model: Any) -> None:
        self._model = model
        self._by_alias = is_pydantic(model) and writes_aliases(model)
        self._encode = encoder_of(record_shape(model))
        self.deserialize = from_json(model)

    def serialize(self, value: Any) -> bytes:
        if not isinstance(value, self._model):
            raise SerializationError(f"expected {self._model.__name__}, got {excerpt(value)}")
        try:
            if is_pydantic(self._model):
                text: str = value.model_dump_json(by_alias=self._by_alias)
                return text.encode()
            return self._encode(plain_of(value))
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"cannot write {excerpt(value)} as JSON: {error}") from error


def _rebuilt(schema: Any, type_: Any, validate: bool, registered: dict[str, Any]) -> JsonSchemaSerde[Any]:
    return JsonSchemaSerde(schema, type=type_, validate=validate, **registered)


def _derived(type_: Any) -> Any:
    try:
        if is_pydantic(type_):
            by_alias = writes_aliases(type_)
            check_aliases(type_, by_alias)
            return type_.model_json_schema(by_alias=by_alias)
        type_ = shape_of(type_)
        (schema,), parts = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    except (TypeError, ValueError, RuntimeError) as error:  # pydantic raises a RuntimeError
        raise ConfigError(f"no JSON Schema follows from {type_!r}: {error}") from error
    name = schema.get("$ref", "").rpartition("/")[2]
    if name in parts:  # other languages write a record at the top, not a $ref
        schema = parts[name] if _refers_to(parts, name) else parts.pop(name)
    return {**schema, "$defs": parts} if parts else schema


def _refers_to(parts: Any, name: str) -> bool:
    return json.dumps(f"#/$defs/{name}") in json.dumps(parts)


def _as_json(schema: Schema) -> Any:
    try:
        given = json.loads(schema) if isinstance(schema, str) else json.loads(json.dumps(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"a JSON Schema is JSON, got {excerpt(schema)}: {error}") from error
    if not isinstance(given, dict | bool):
        raise ConfigError(f"a JSON Schema is an object, got {excerpt(given)}")
    return given


def _validator(schema: Any, referenced: Mapping[str, Any]) -> Callable[[Any], None]:
    require_schemas("jsonschema_rs")
    import jsonschema_rs

    try:
        paths = most_paths(schema, referenced)
    except RecursionError as error:
        raise ConfigError(f"{excerpt(schema)} is nested too deep for a JSON Schema") from error
    if paths > MOST_PATHS:
        raise ConfigError(
            f"{excerpt(schema)} is a JSON Schema in which more than {MOST_PATHS:,} parts may check one value, so a "
            "check could take minutes. Refer to each definition fewer times, or give validate=False"
        )
    if referenced and isinstance(schema, dict):
        schema = {"$id": _NO_BASE, **schema}  # the validator resolves relative names against $id
    base = str(schema.get("$id", "")) if isinstance(schema, dict) else ""

    def retrieve(uri: str) -> Any:
        for name, each in referenced.items():
            if uri in (name, urljoin(base, name)):
                return each
        raise ValueError(f"{uri} is not part of the schema")

    try:
        check: Callable[[Any], None] = jsonschema_rs.validator_for(schema, retriever=retrieve).validate
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ValidationError) as error:
        remedy = (
            "; put it under $defs, or name it in references=" if "retrieving it failed" in str(error) else ""
        )
        raise ConfigError(
            f"{excerpt(schema)} is no JSON Schema: {excerpt(str(error), size=500)}{remedy}"
        ) from error
    return check
