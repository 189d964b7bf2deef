"""`Registered`: the schema of a serde in a registry, under a subject.

The registry gives the schema an id, which the serde writes before each value or into a header.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal
from uuid import UUID

from streamapp._base.aside import before_asking
from streamapp._base.names import short_hash
from streamapp.errors import ConfigError, SchemaRegistryError, SerializationError
from streamapp.serdes.framing import GUID_BYTES, ID_BYTES, guid_frame, id_frame, shown_frame
from streamapp.serdes.references import check_references
from streamapp.serdes.schema_diff import summary
from streamapp.serdes.schema_registry import (
    MAX_ID,
    LocalSchemaRegistry,
    Schema,
    SchemaFormat,
    SchemaGuids,
    SchemaReference,
    SchemaRegistry,
    SchemaVersion,
    VersionMissing,
    default_registry,
)

__all__ = ["Registered", "SchemaIdIn", "SubjectStrategy", "VersionUnusable", "objected", "own_schema"]

SubjectStrategy = Literal["topic", "record", "topic-record"]
"""The rule for the name of a subject. The three rules give ``<topic>-value`` (of a key ``<topic>-key``), ``<record>``
and ``<topic>-<record>`` (Confluent's TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy)."""

SchemaIdIn = Literal["payload", "header"]
"""With "payload", the schema's id is before the value. With "header", the schema's GUID is in a header of the record
(Confluent's HeaderSchemaIdSerializer)."""

Objection = Callable[[Schema], str]
"""A function that gets another version of a schema, and returns the reason why the two do not go together; empty if
they do."""

_MOST_NAME = 100


class VersionUnusable(SchemaRegistryError, ConfigError):
    """A serde with ``version`` cannot write with this version of its subject.

    The version belongs to the registry and not to the record. So this error is also a `SchemaRegistryError`, and no
    record is skipped because of it.
    """


class Registered:
    """The schema of a serde, and the serde's settings for the registry.

    ``record`` is the full name of the record that the schema describes; None if it has no name. ``strategy`` is the
    rule for the name of the subject (`SubjectStrategy`). With ``version`` (a number or "latest"), the serde writes with
    this version of the subject, and registers no schema. ``whole`` is the schema with the types of its references
    inserted.

    ``objection`` is a function that gets another version of the schema. The function returns the reason why the two do
    not go together, by rules that a registry does not know; or an empty text.

    Raises `ConfigError` for a wrong ``strategy``, ``version``, ``schema_id_in`` or ``references``, and for a strategy
    that needs ``record`` without one.
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
        schema_id_in: SchemaIdIn = "payload",
        references: Sequence[SchemaReference] = (),
        whole: Schema | None = None,
        objection: Objection | None = None,
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
        if schema_id_in not in ("payload", "header"):
            raise ConfigError(f'schema_id_in must be "payload" or "header", not {schema_id_in!r}')
        self.schema: Schema = schema
        self.references: tuple[SchemaReference, ...] = check_references(references)
        self.whole: Schema = schema if whole is None else whole
        self.objection: Objection | None = objection
        self.format: SchemaFormat = format
        self.record: str | None = record
        self.strategy: SubjectStrategy = strategy
        self.version: int | Literal["latest"] | None = version
        self.schema_id_in: SchemaIdIn = schema_id_in
        self.subject: str = subject or record or "the schema"
        self._given_subject = subject
        self._registry = registry
        self._own_registry: SchemaRegistry | None = None

    @property
    def registry(self) -> SchemaRegistry:
        """The serde's own registry, else the application's registry, else a `LocalSchemaRegistry` of this serde
        alone."""
        found = self._registry or default_registry() or self._own_registry
        if found is None:
            found = self._own_registry = LocalSchemaRegistry()
        return found

    @property
    def _asked_registry(self) -> SchemaRegistry:
        """``registry``, for a question that may have to wait for a server."""
        found = self.registry
        if not isinstance(found, LocalSchemaRegistry):
            before_asking()
        return found

    def subject_for(self, topic: str, is_key: bool) -> str:
        if self.strategy == "topic":
            return f"{topic}-{'key' if is_key else 'value'}"
        return f"{topic}-{self.record}" if self.strategy == "topic-record" else str(self.record)

    def written(self) -> tuple[bytes, Schema]:
        """The frame for written values, which has the id or GUID of a schema, and this schema."""
        if self.version is None:
            self._compare_with_latest()
            return (self._guid_frame() if self.schema_id_in == "header" else self._id_frame()), self.whole
        found = self._asked_registry.version_of(self.subject, self.version)
        if found.format != self.format:
            raise SchemaRegistryError(
                f"version {found.version} of {self.subject} is {found.format}, not {self.format}"
            )
        self._object_to(found)
        if self.schema_id_in == "payload":
            return id_frame(found.id), found.schema
        if found.guid is None:
            raise _no_guids(self.registry)
        return guid_frame(found.guid), found.schema

    @contextmanager
    def usable(self) -> Iterator[None]:
        """Raises `VersionUnusable` in place of the errors of a serde that prepares to write with its ``version``."""
        try:
            yield
        except SchemaRegistryError:
            raise
        except (ConfigError, ValueError) as error:
            if self.version is None:
                raise
            raise VersionUnusable(
                f"this serde cannot write with version {self.version} of {self.subject}: {error}"
            ) from error

    def _compare_with_latest(self) -> None:
        if self.objection is None or isinstance(self.registry, LocalSchemaRegistry):
            return
        with suppress(VersionMissing):
            self._object_to(self._asked_registry.version_of(self.subject))

    def _object_to(self, other: SchemaVersion) -> None:
        if self.objection is not None and (why := self.objection(other.schema)):
            raise SchemaRegistryError(objected(self.subject, other.version, other.id, why))

    def writer_of(self, data: bytes) -> Schema:
        """The schema with which these bytes were written. The frame at their beginning names the schema.

        Raises `SerializationError` if no schema can have the id.
        """
        if isinstance(self.registry, LocalSchemaRegistry):
            # A `LocalSchemaRegistry` learns the serde's own schema only when it is asked for its id.
            self._id_frame()
        if data[0] == 0:
            schema_id = int.from_bytes(data[1:ID_BYTES], "big")
            if schema_id > MAX_ID:
                # A registry may answer such a number with 404, which would look like a wrong address of the registry.
                raise SerializationError(
                    f"no schema has id {schema_id}, because ids have at most 31 bits: "
                    "read this topic with the serde of its writer"
                )
            return self._asked_registry.schema_of(schema_id, *self._other_format)
        return _guids(self._asked_registry).schema_of_guid(UUID(bytes=data[1:GUID_BYTES]), self.format)

    def _id_frame(self) -> bytes:
        return id_frame(self._asked_registry.id_of(*self._asked()))

    def _guid_frame(self) -> bytes:
        subject, schema, *_ = asked = self._asked()
        references = asked[3:] and self.references
        return guid_frame(_guids(self._asked_registry).guid_of(subject, schema, self.format, references))

    def _asked(self) -> tuple[Any, ...]:
        """The arguments of ``id_of`` and ``guid_of``. A `LocalSchemaRegistry` does not resolve references, so it gets
        the schema with the referenced types inserted."""
        if self.references and not isinstance(self.registry, LocalSchemaRegistry):
            return self.subject, self.schema, self.format, self.references
        return self.subject, self.whole, *self._other_format

    @property
    def _other_format(self) -> tuple[SchemaFormat, ...]:
        """The format as a further argument of the registry's methods; none for Avro.

        So the methods of a user's own registry for Avro need no parameter ``format``.
        """
        return () if self.format == "AVRO" else (self.format,)

    def unlike(self, data: bytes, written: Any) -> str:
        """Text for an error about unreadable bytes: the id of the writer's schema, and its difference from this one."""
        changes = summary(written, self.whole)
        theirs = f"they were written with the schema of {shown_frame(data)}"
        if not changes:
            return f"{theirs}, which is the same as here"
        return f"{theirs}, and {(self.record or self.subject)[:_MOST_NAME]} here differs from it: {changes}"

    def arguments(self, subject: str | None = None) -> dict[str, Any]:
        """The arguments about registry and schema with which a serde is copied. The copy is for another subject, or for
        another process.

        By default a serde uses the application's registry. Another process does not know this registry, so the copy
        gets the registry as an argument.
        """
        return {
            "registry": self._registry or default_registry(),
            "subject": subject or self._given_subject,
            "subject_strategy": self.strategy,
            "version": self.version,
            "schema_id_in": self.schema_id_in,
            "references": self.references,
        }


def own_schema(serde: object) -> str | None:
    """A short hash of the schema whose id a serde, or the serde inside, writes into its bytes.

    None if the serde has no schema, or if a version of the subject decides (``version``).

    >>> from streamapp.serdes import AvroSerde, StringSerde
    >>> own_schema(AvroSerde("string")), own_schema(StringSerde())
    ('e1fed3de', None)
    """
    found = getattr(serde, "registered", None)
    if isinstance(found, Registered):
        return None if found.version is not None else short_hash(f"{found.format} {json.dumps(found.whole)}")
    inner = getattr(serde, "inner", None)
    return None if inner is None else own_schema(inner)


def objected(subject: str, version: int, schema_id: int, why: str) -> str:
    """The words of an objection to a version of a subject."""
    return (
        f"the schema of {subject} does not go together with version {version} (id {schema_id}): {why}. Give each field "
        "the number that it has there, Annotated[..., FieldNumber(...)], and a new field a new number"
    )


def _guids(registry: SchemaRegistry) -> SchemaGuids:
    if isinstance(registry, SchemaGuids):
        return registry
    raise _no_guids(registry)


def _no_guids(registry: SchemaRegistry) -> SchemaRegistryError:
    return SchemaRegistryError(
        f'{registry!r} gives no GUIDs, which schema_id_in="header" needs: Confluent Schema Registry has them since '
        '8.0. Write with schema_id_in="payload"'
    )
