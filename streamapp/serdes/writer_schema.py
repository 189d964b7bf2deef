"""`WriterSchema`: reads and writes bytes with the schema that their frame names, for tools that know no serde."""

from __future__ import annotations

import json
from typing import Any, get_args
from uuid import UUID

from streamapp.errors import ConfigError, SerializationError
from streamapp.serdes.avro import AvroSerde
from streamapp.serdes.avro_schema import SchemaRefused, without_mistakes
from streamapp.serdes.base import Serde
from streamapp.serdes.framing import GUID_BYTES, ID_BYTES, frame_end, id_frame
from streamapp.serdes.json_schema import JsonSchemaSerde
from streamapp.serdes.schema_registry import (
    LocalSchemaRegistry,
    Schema,
    SchemaFormat,
    SchemaGuids,
    SchemaRegistry,
)
from streamapp.serdes.value_texts import as_document, parse_text, serde_name

__all__ = ["WriterSchema", "is_protobuf", "writer_schema"]


class WriterSchema:
    """A schema of Avro or a JSON Schema, and the ``frame`` (id or GUID) that names this schema in bytes.

    Raises `ConfigError` if values cannot be checked with the schema, for example for a JSON Schema that refers to
    another subject.

    >>> written = WriterSchema("AVRO", "string", id_frame(7))
    >>> written.text(written.bytes_of('"JFK"')), written.bytes_of('"JFK"')[:5] == id_frame(7)
    ('"JFK"', True)
    """

    def __init__(self, format: SchemaFormat, schema: Schema, frame: bytes) -> None:
        registry = LocalSchemaRegistry()  # nothing is registered anywhere
        if format == "AVRO":
            try:
                self._serde: Serde[Any] = AvroSerde(schema, registry=registry)
            except ConfigError:
                schema = without_mistakes(schema)
                self._serde = AvroSerde(schema, registry=registry)
            own = registry.id_of("", schema)
        else:
            self._serde = JsonSchemaSerde(schema, registry=registry)
            own = registry.id_of("", schema, format)
        self.frame = frame
        self._own = id_frame(own)

    @property
    def form(self) -> str:
        """The format, such as ``avro``."""
        return serde_name(self._serde)

    def text(self, data: bytes) -> str:
        """The value of bytes, as JSON. Raises `SerializationError`."""
        body = data[len(self.frame) :]
        value = self._serde.deserialize(self._own + body)
        if isinstance(self._serde, JsonSchemaSerde):
            return body.decode()
        return json.dumps(as_document(self._serde, value), ensure_ascii=False)

    def bytes_of(self, text: str) -> bytes:
        """The bytes of a JSON text, with the frame. Raises any exception for a text that does not fit the schema."""
        if isinstance(self._serde, JsonSchemaSerde):
            self._serde.deserialize(self._own + text.encode())
            return self.frame + text.encode()
        return self.frame + parse_text(self._serde, text)[1][ID_BYTES:]


def writer_schema(registry: SchemaRegistry, data: bytes) -> WriterSchema | None:
    """The schema with which bytes were written. None without a frame, and for a schema that the registry does not have
    or that cannot check values. Also None for Protobuf, whose messages need a class.

    Raises `SchemaRegistryError` if the registry does not answer.
    """
    frame = data[: frame_end(data)]
    formats: tuple[SchemaFormat, ...] = get_args(SchemaFormat)
    for format in formats if frame else ():
        try:
            schema = _schema(registry, frame, format)
            return None if schema is None or format == "PROTOBUF" else WriterSchema(format, schema, frame)
        except (SerializationError, ConfigError, SchemaRefused):
            continue  # the schema has another format, or there is none
    return None


def is_protobuf(registry: SchemaRegistry, data: bytes) -> bool:
    """True for bytes whose schema is Protobuf. Raises `SchemaRegistryError` if the registry does not answer."""
    frame = data[: frame_end(data)]
    try:
        return bool(frame) and _schema(registry, frame, "PROTOBUF") is not None
    except SerializationError:  # the schema has another format, or there is none
        return False


def _schema(registry: SchemaRegistry, frame: bytes, format: SchemaFormat) -> Schema | None:
    if len(frame) == GUID_BYTES:
        return (
            registry.schema_of_guid(UUID(bytes=frame[1:]), format)
            if isinstance(registry, SchemaGuids)
            else None
        )
    number = int.from_bytes(frame[1:], "big")
    # Registries answer numbers of more than 31 bits as if their address were wrong.
    return registry.schema_of(number, format) if number < 2**31 else None
