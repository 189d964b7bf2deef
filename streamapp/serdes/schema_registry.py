"""The source of schema ids: the port, and a registry that needs no server."""

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
    "LocalSchemaRegistry",
    "Schema",
    "SchemaFormat",
    "SchemaGuids",
    "SchemaReference",
    "SchemaRegistry",
    "SchemaVersion",
    "default_registry",
    "set_default_registry",
]

Schema: TypeAlias = str | dict[str, Any] | list[Any]
"""A schema as JSON has it (Avro and JSON Schema), or the text of a .proto file."""

SchemaFormat: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]
"""The formats by the names that Confluent's registry gives them."""


class SchemaReference(NamedTuple):
    """A schema that another one refers to, with the subject under which a registry has it.

    ``name`` is what the schema calls the other one: the full name of an Avro type, the path of a Protobuf import, the
    ``$ref`` of a JSON Schema. Source: "References" in Confluent's documentation of the schema registry.

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
    """None: the registry gives no GUIDs."""


class SchemaRegistry(Protocol):
    """Ids of schemas, as Confluent's registry gives them out. Implementations have to be picklable.

    ``id_of`` gets a fourth argument, the references, for schemas that have some. `SchemaGuids` is the port of a registry
    that has GUIDs.

    A registry that nobody can reach, and a schema that the registry refuses, are a `SchemaRegistryError`: records are
    not to blame, so exception handlers are not asked.
    """

    def id_of(self, subject: str, schema: Schema, format: SchemaFormat = "AVRO") -> int:
        """The id (0 to 2**31 - 1) of a schema, which is registered under the subject if it is new."""
        ...

    def schema_of(self, schema_id: int, format: SchemaFormat = "AVRO") -> Schema:
        """The schema with that id; `SerializationError` if there is none, or one of another format."""
        ...

    def version_of(self, subject: str, version: int | Literal["latest"] = "latest") -> SchemaVersion:
        """A version of a subject; `SchemaRegistryError` if there is none."""
        ...


@runtime_checkable
class SchemaGuids(Protocol):
    """A registry that gives schemas GUIDs, too: serdes with ``schema_id_in="header"`` write these."""

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
        """The schema with that GUID; `SerializationError` if there is none, or one of another format."""
        ...


class LocalSchemaRegistry:
    """A registry without a server: the id of a schema is 31 bits of its own SHA-256.

    So all processes give a schema the same id without having to talk. What was written with a schema that a
    process does not have in its own code needs that schema to be read: with a ``path`` (a folder that all of
    them see) every schema is a file there, written once, whole, and never changed. Subjects share the ids.

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
                f"The schema of {subject} and another one have the same id {schema_id} in this registry. "
                'Add a "doc" to one of them: it changes the id.'
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
            f"version {version} of {subject} cannot be told: LocalSchemaRegistry knows no versions of subjects. "
            "Use a ConfluentSchemaRegistry, or leave version= out."
        )

    def _stored(self, folder: Path, schema_id: int, text: str) -> Schema:
        """The schema of the id's file, which is made from the text if there is none."""
        stored = self._read(folder, schema_id)
        if stored is not None:
            return stored
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=folder, prefix=".draft-")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            # Linking fails if another process was first, and shows no other process a file half written.
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
    """The registry of serdes that were given none; None: each has a `LocalSchemaRegistry` of its own."""
    return _default


def set_default_registry(registry: SchemaRegistry) -> None:
    """Names the registry of serdes that were given none. Raises `ConfigError` if the process has another one."""
    global _default
    if _default is not None and _default != registry:
        raise ConfigError(
            f"this process uses {_default!r}, and an application of it names {registry!r}: "
            "give each serde its registry=, or run the applications in processes of their own"
        )
    _default = registry
