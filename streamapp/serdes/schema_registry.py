"""`SchemaRegistry`: the interface of schema registries, and a registry that needs no server."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable
from uuid import UUID

from streamapp.errors import ConfigError, SchemaRegistryError, SerializationError

__all__ = [
    "MAX_ID",
    "LocalSchemaRegistry",
    "Schema",
    "SchemaFormat",
    "SchemaGuids",
    "SchemaReference",
    "SchemaRegistry",
    "SchemaVersion",
    "VersionMissing",
    "default_registry",
    "set_default_registry",
]

MAX_ID = 2**31 - 1
"""The largest id and version of a schema."""

Schema: TypeAlias = str | dict[str, Any] | list[Any]
"""A schema as JSON values or text (Avro and JSON Schema), or the text of a .proto file."""

SchemaFormat: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]
"""The formats by the names that Confluent's registry gives them."""


class SchemaReference(NamedTuple):
    """A schema to which another schema refers, with its subject in the registry.

    ``name`` is the text by which the referring schema names this one. In Avro, this is the full name of a type, in
    Protobuf the path of an import, in a JSON Schema the ``$ref``. Source: "References" in Confluent's documentation of
    the schema registry.

    >>> SchemaReference("shop.Item", "shop-item", {"type": "enum", "name": "shop.Item", "symbols": ["CUP"]}).subject
    'shop-item'
    """

    name: str
    subject: str
    schema: Schema
    references: tuple[SchemaReference, ...] = ()
    """The references of this schema itself."""


class SchemaVersion(NamedTuple):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema
    format: SchemaFormat = "AVRO"
    guid: UUID | None = None
    """The GUID of the schema; None if the registry gives no GUIDs."""


class VersionMissing(SchemaRegistryError):
    """The registry has no such subject, or the subject has no such version."""


class SchemaRegistry(Protocol):
    """The interface of a schema registry, which gives an id to each schema. A registry of your own is an object with
    these methods.

    `ConfluentSchemaRegistry` and `LocalSchemaRegistry` are implementations. An implementation must be picklable,
    because Spark sends serdes to other processes. For a schema with references, ``id_of`` gets the references as a
    fourth argument. A registry that also gives GUIDs has the methods of `SchemaGuids`.

    The methods raise `SchemaRegistryError` if the registry does not answer or refuses the schema. No exception handler
    is asked about this error, because the record is not its cause.
    """

    def id_of(self, subject: str, schema: Schema, format: SchemaFormat = "AVRO") -> int:
        """The id (0 to `MAX_ID`) of a schema, which is registered under the subject if it is new."""
        ...

    def schema_of(self, schema_id: int, format: SchemaFormat = "AVRO") -> Schema:
        """The schema with this id. Raises `SerializationError` if there is none, or if its format is another."""
        ...

    def version_of(self, subject: str, version: int | Literal["latest"] = "latest") -> SchemaVersion:
        """A version of a subject. Raises `VersionMissing` if there is none."""
        ...


@runtime_checkable
class SchemaGuids(Protocol):
    """A registry that also gives GUIDs to schemas; serdes with ``schema_id_in="header"`` write GUIDs."""

    def guid_of(
        self,
        subject: str,
        schema: Schema,
        format: SchemaFormat = "AVRO",
        references: tuple[SchemaReference, ...] = (),
    ) -> UUID:
        """The GUID of a schema, which is registered under the subject if it is new."""
        ...

    def schema_of_guid(self, guid: UUID, format: SchemaFormat = "AVRO") -> Schema:
        """The schema with this GUID. Raises `SerializationError` if there is none, or if its format is another."""
        ...


class LocalSchemaRegistry:
    """A registry without a server, for tests and development. The id of a schema is 31 bits of its SHA-256.

    All processes compute the same id for a schema, and the id is the same under all subjects. `id_of` raises
    `SerializationError` if the object or folder already has another schema with the same id. To read a value, a process
    needs the schema with which the value was written. So give all processes the same folder as ``path``: each schema
    becomes a file there, which is written atomically and never changes. Without ``path``, an object of this class knows
    only the schemas that were registered with it. The registry knows no versions, so a serde with ``version`` raises
    `SchemaRegistryError`.

    >>> registry = LocalSchemaRegistry()
    >>> registry.id_of("flights-value", "string") == LocalSchemaRegistry().id_of("other-key", "string")
    True
    >>> registry.schema_of(registry.id_of("flights-value", "string"))
    'string'
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else Path(path)
        self._schemas: dict[int, Schema] = {}
        self._formats: dict[int, SchemaFormat] = {}

    def id_of(self, subject: str, schema: Schema, format: SchemaFormat = "AVRO") -> int:
        text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
        schema_id = int.from_bytes(_digest(text, format)[:4], "big") >> 1
        known = self._schemas.get(schema_id)
        if known is None:
            known = json.loads(text) if self._path is None else self._stored(self._path, schema_id, text)
        if known != schema:
            raise SerializationError(
                f"The schema of {subject} and another schema have the same id {schema_id} in this registry. "
                'Add a "doc" to one of the two schemas, which changes the id.'
            )
        self._schemas[schema_id], self._formats[schema_id] = known, format
        return schema_id

    def schema_of(self, schema_id: int, format: SchemaFormat = "AVRO") -> Schema:
        schema = self._schemas.get(schema_id)
        if schema is None and self._path is not None:
            schema = self._read(self._path, schema_id)
        if schema is None:
            where = "that this process has registered" if self._path is None else f"in {self._path}"
            raise SerializationError(
                f"There is no schema with id {schema_id} {where}. Give all processes the registry that the "
                "writer has: LocalSchemaRegistry(path) with a shared folder, or another SchemaRegistry."
            )
        found = self._formats.get(schema_id, format)
        if found != format:
            raise SerializationError(f"The schema with id {schema_id} is {found}, not {format}.")
        self._schemas[schema_id] = schema
        return schema

    def guid_of(
        self,
        subject: str,
        schema: Schema,
        format: SchemaFormat = "AVRO",
        references: tuple[SchemaReference, ...] = (),
    ) -> UUID:
        """The first 128 bits of the schema's SHA-256: the id is the first 31 bits of the GUID."""
        self.id_of(subject, schema, format)
        return UUID(bytes=_digest(json.dumps(schema, sort_keys=True, separators=(",", ":")), format)[:16])

    def schema_of_guid(self, guid: UUID, format: SchemaFormat = "AVRO") -> Schema:
        return self.schema_of(int.from_bytes(guid.bytes[:4], "big") >> 1, format)

    def version_of(self, subject: str, version: int | Literal["latest"] = "latest") -> SchemaVersion:
        raise SchemaRegistryError(
            f"version {version} of {subject} cannot be looked up: LocalSchemaRegistry knows no versions of subjects. "
            "Use a ConfluentSchemaRegistry, or leave version= out."
        )

    def _stored(self, folder: Path, schema_id: int, text: str) -> Schema:
        """The schema in the file of the id. If there is no file, the text becomes its content."""
        stored = self._read(folder, schema_id)
        if stored is not None:
            return stored
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=folder, prefix=".draft-")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            # A link fails if another process was first. A reader never sees a half-written file.
            os.link(draft, folder / f"{schema_id}.avsc")
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)
        stored = self._read(folder, schema_id)
        assert stored is not None
        return stored

    def _read(self, folder: Path, schema_id: int) -> Schema | None:
        try:
            return json.loads((folder / f"{schema_id}.avsc").read_bytes())  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"{folder / f'{schema_id}.avsc'} is not JSON: {error}") from error


def _digest(text: str, format: SchemaFormat) -> bytes:
    return hashlib.sha256((text if format == "AVRO" else f"{format} {text}").encode()).digest()


_default: SchemaRegistry | None = None


def default_registry() -> SchemaRegistry | None:
    """The registry of serdes without ``registry=``. None means: each such serde has its own `LocalSchemaRegistry`."""
    return _default


def set_default_registry(registry: SchemaRegistry) -> None:
    """Sets the registry of serdes without ``registry=``. Raises `ConfigError` if another one was set before."""
    global _default
    if _default is not None and _default != registry:
        raise ConfigError(
            f"an application of this process already uses {_default!r}, and another names {registry!r}: "
            "give each serde its registry=, or run each application in its own process"
        )
    _default = registry
