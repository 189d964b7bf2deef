"""`ValueField`: a field of the values of a topic, for tools that know no serde of the topic."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from streamapp.errors import ConfigError, SerializationError
from streamapp.runners.connection import use_registry_of_environment
from streamapp.serdes.framing import frame_end, shown_frame
from streamapp.serdes.schema_registry import SchemaRegistry, default_registry
from streamapp.serdes.writer_schema import WriterSchema, is_protobuf, writer_schema

__all__ = ["ValueField"]


class ValueField:
    """Reads one field of values: of JSON objects, and of values that begin with the id of a schema.

    Without ``registry``, the variable ``STREAMAPP_SCHEMA_REGISTRY_URL`` names the registry. Raises `ConfigError` for
    Protobuf, and for values of Avro if there is no registry. Otherwise all records of a topic would have no id, and
    count as missing.

    >>> field = ValueField("order")
    >>> field(b'{"order": 7}'), field(b"nothing"), field(None)
    ('7', None, None)
    """

    def __init__(self, name: str, registry: SchemaRegistry | None = None) -> None:
        self._name, self._registry = name, registry
        self._written: dict[bytes, WriterSchema | None] = {}
        """The schemas of the frames that values have had."""

    def __call__(self, value: Any) -> str | None:
        """The field as text; None for a value that has no such field, or that nobody can read."""
        try:
            found = self._object(value)[self._name]
        except ConfigError:  # a `ValueError`, too
            raise
        except (ValueError, TypeError, KeyError, IndexError, SerializationError):
            return None
        return None if found is None else str(found)

    def _object(self, value: Any) -> Any:
        end = frame_end(value) if isinstance(value, bytes) else 0
        if not end:
            return json.loads(value)
        with suppress(ValueError):
            found = json.loads(value[end:])
            if isinstance(found, dict):  # a JSON Schema; short records of Avro look like numbers of JSON
                return found
        frame = value[:end]
        if frame not in self._written:
            self._written[frame] = self._schema(value)
        written = self._written[frame]
        return None if written is None else json.loads(written.text(value))

    def _schema(self, value: bytes) -> WriterSchema | None:
        registry = self._registry
        if registry is None:
            use_registry_of_environment()
            registry = default_registry()
        if registry is None:
            raise ConfigError(
                f"a value begins with the {shown_frame(value)} of a schema: name its registry in "
                "STREAMAPP_SCHEMA_REGISTRY_URL, or give another --id, such as key or header:NAME"
            )
        if is_protobuf(registry, value):
            raise ConfigError(
                f"a value is Protobuf (schema {shown_frame(value)}), whose fields nobody can read without the class "
                "of the message: give another --id, such as key or header:NAME"
            )
        return writer_schema(registry, value)
