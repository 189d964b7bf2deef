"""A schema under its subject: the id that a serde writes in front of its bytes."""

from __future__ import annotations

from typing import Any, Literal

from streamapp.errors import ConfigError, SchemaRegistryError
from streamapp.serdes.schema_diff import summary
from streamapp.serdes.schema_registry import (
    LocalSchemaRegistry,
    Schema,
    SchemaFormat,
    SchemaRegistry,
    default_registry,
)

__all__ = ["HEADER_BYTES", "Registered", "SubjectStrategy"]

SubjectStrategy = Literal["topic", "record", "topic-record"]
"""The name of a subject: ``<topic>-value``, ``<record>`` or ``<topic>-<record>`` (Confluent's TopicNameStrategy,
RecordNameStrategy, TopicRecordNameStrategy)."""

_MOST_NAME = 100
HEADER_BYTES = 5
"""A byte 0, and the id in 4 bytes big endian."""


class Registered:
    """One schema of a serde in a registry.

    ``version`` pins what is written: a version of the subject, or its latest. Nothing is registered then. Raises
    `ConfigError` for a strategy without record name and for what is no version.
    """

    def __init__(
        self,
        schema: Schema,
        format: SchemaFormat,
        record: str | None,
        registry: SchemaRegistry | None,
        strategy: SubjectStrategy,
        version: int | Literal["latest"] | None,
        subject: str | None,
    ) -> None:
        if strategy not in ("topic", "record", "topic-record"):
            raise ConfigError(
                f"subject_strategy must be one of topic, record, topic-record, not {strategy!r}"
            )
        if strategy != "topic" and record is None:
            raise ConfigError(
                f"subject_strategy={strategy!r} needs a schema with a name (JSON Schema: a title)"
            )
        if version not in (None, "latest") and not (type(version) is int and version > 0):
            raise ConfigError(
                f'version must be a version of the subject (1, 2 ...) or "latest", not {version!r}'
            )
        self.schema: Schema = schema
        self.format: SchemaFormat = format
        self.record: str | None = record
        self.strategy: SubjectStrategy = strategy
        self.version: int | Literal["latest"] | None = version
        self.subject: str = subject or record or "the schema"
        self._given_subject = subject
        self._registry = registry
        self._own_registry: SchemaRegistry | None = None

    @property
    def registry(self) -> SchemaRegistry:
        """The registry that the serde was given, else the application's, else one without server."""
        found = self._registry or default_registry() or self._own_registry
        if found is None:
            found = self._own_registry = LocalSchemaRegistry()
        return found

    def subject_for(self, topic: str, is_key: bool) -> str:
        if self.strategy == "topic":
            return f"{topic}-{'key' if is_key else 'value'}"
        return f"{topic}-{self.record}" if self.strategy == "topic-record" else str(self.record)

    def written(self) -> tuple[bytes, Schema]:
        """The first five bytes of what is written, and the schema that they stand for."""
        if self.version is None:
            schema_id, schema = self._id(), self.schema
        else:
            found = self.registry.version_of(self.subject, self.version)
            if found.format != self.format:
                raise SchemaRegistryError(
                    f"version {found.version} of {self.subject} is {found.format}, not {self.format}"
                )
            schema_id, schema = found.id, found.schema
        return b"\0" + schema_id.to_bytes(4, "big"), schema

    def writer_of(self, header: bytes) -> Schema:
        """The schema of bytes that begin with these five."""
        if isinstance(self.registry, LocalSchemaRegistry):
            # A registry without a server knows only what it was told.
            self._id()
        return self.registry.schema_of(int.from_bytes(header[1:HEADER_BYTES], "big"), *self._other_format)

    def _id(self) -> int:
        return self.registry.id_of(self.subject, self.schema, *self._other_format)

    @property
    def _other_format(self) -> tuple[SchemaFormat, ...]:
        """The argument that a registry of an application, for Avro alone, need not have."""
        return () if self.format == "AVRO" else (self.format,)

    def unlike(self, header: bytes, written: Any) -> str:
        """The two schemas of bytes that cannot be read, and their difference, in a sentence."""
        changes = summary(written, self.schema)
        theirs = f"they were written with the schema of id {int.from_bytes(header[1:HEADER_BYTES], 'big')}"
        if not changes:
            return f"{theirs}, which is the same as here"
        return f"{theirs}, and {(self.record or self.subject)[:_MOST_NAME]} here differs from it: {changes}"

    def arguments(self) -> tuple[Any, ...]:
        """What the schema was given, for a copy in another process: with the application's registry."""
        return self._registry or default_registry(), self.strategy, self.version, self._given_subject
