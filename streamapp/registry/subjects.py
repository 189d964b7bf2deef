"""The subjects of a registry, as ``streamapp schema`` shows them, and the check of schemas before a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from streamapp.errors import SchemaRegistryError
from streamapp.registry.confluent import ConfluentSchemaRegistry
from streamapp.registry.questions import question_of, schema_text
from streamapp.registry.rest import RegistryRefusal, path_of
from streamapp.serdes.registered import Registered, objected
from streamapp.serdes.schema_diff import difference
from streamapp.serdes.schema_registry import Schema, SchemaFormat, SchemaReference, SchemaVersion

__all__ = ["Change", "Latest", "Subjects"]

_LEVEL = {"compatibilityLevel": str}


@dataclass(frozen=True)
class Change:
    """The result of comparing a schema with its subject in the registry."""

    subject: str
    kind: Literal["unchanged", "new", "compatible", "incompatible", "uncompared", "pinned", "missing"]
    """``new``: the registry has no such subject. ``uncompared``: the registry lacks a schema to which this one refers,
    so it cannot compare. ``pinned``: the serde has ``version=``, and the subject has this version. ``missing``: the
    subject lacks this version."""
    latest: SchemaVersion | None = None
    difference: tuple[str, ...] = ()
    why: str = ""
    version: int | None = None
    """If ``kind`` is ``unchanged``: the version of the subject that is this schema."""
    objection: str = ""
    """The reason why the serde itself refuses an earlier version. The registry may still accept the schema."""


class Latest(NamedTuple):
    """The latest version of a subject, without its schema."""

    version: int
    id: int
    format: SchemaFormat


class Subjects:
    """Reads subjects of a registry, and changes nothing.

    Raises `SchemaRegistryError` if the registry does not answer.
    """

    def __init__(self, registry: ConfluentSchemaRegistry) -> None:
        self._registry, self._client = registry, registry.client

    def names(self) -> list[str]:
        found: list[str] = self._client.ask("GET", "/subjects")
        return sorted(found)

    def versions(self, subject: str) -> list[int]:
        try:
            found: list[int] = self._client.ask("GET", path_of("subjects", subject, "versions"))
        except RegistryRefusal as refusal:
            if refusal.status == 404:
                raise SchemaRegistryError(f"the registry has no subject {subject}") from refusal
            raise
        return sorted(found)

    def latest(self, subject: str) -> Latest:
        """The latest version of a subject. The registry is not asked for the references of its schema, which may be
        deleted."""
        path = path_of("subjects", subject, "versions", "latest")
        found = self._client.ask("GET", path, has={"schema": str, "id": int, "version": int})
        return Latest(found["version"], found["id"], found.get("schemaType") or "AVRO")

    def level(self) -> str:
        """The registry's compatibility level for subjects without a level of their own, such as ``BACKWARD``."""
        return str(self._client.ask("GET", "/config", has=_LEVEL)["compatibilityLevel"])

    def _is_transitive(self, subject: str) -> bool:
        """True if the level of the subject compares a new schema with all versions, and not only with the latest one.

        The caller needs this, because Apicurio Registry compares with all versions unless the request names one.
        """
        try:
            level = str(self._client.ask("GET", path_of("config", subject), has=_LEVEL)["compatibilityLevel"])
        except RegistryRefusal as refusal:
            if refusal.status != 404:
                raise
            level = "NONE"
        # Apicurio Registry answers NONE for a subject without a rule of its own.
        return (self.level() if level == "NONE" else level).endswith("_TRANSITIVE")

    def pinned(self, subject: str, version: int | Literal["latest"], format: SchemaFormat) -> Change:
        """The result for a serde with ``version=``, which writes with this version and registers no schema."""
        try:
            found = self._registry.version_of(subject, version)
        except SchemaRegistryError as error:
            if isinstance(error.__cause__, RegistryRefusal):
                return Change(subject, "missing", why=error.__cause__.said)
            raise
        if found.format != format:
            return Change(subject, "incompatible", found, why=f"the version is {found.format}, not {format}")
        return Change(subject, "pinned", found)

    def objection(self, subject: str, registered: Registered) -> str:
        """The reason why the serde itself refuses an earlier version of its subject. If the serde refuses several
        versions, the reason is that of the newest refused version. Empty: the serde refuses no version."""
        if registered.objection is None:
            return ""
        try:
            versions = self.versions(subject)
        except SchemaRegistryError as error:
            if isinstance(error.__cause__, RegistryRefusal):
                return ""
            raise
        for version in reversed(versions):
            found = self._registry.version_of(subject, version)
            if why := registered.objection(found.schema):
                return objected(subject, found.version, found.id, why)
        return ""

    def change(
        self,
        subject: str,
        schema: Schema,
        format: SchemaFormat,
        references: tuple[SchemaReference, ...] = (),
        whole: Schema | None = None,
    ) -> Change:
        """Compares a schema with the versions of its subject, by the subject's compatibility level.

        ``references`` are the schemas to which the schema refers, and are compared with their subjects first. ``whole``
        is the schema with the types of its references inserted. The differences in the result are those between the
        latest version and ``whole`` (without ``whole``: the schema).
        """
        others = []
        for each in references:
            inner = self.change(each.subject, each.schema, format, each.references)
            if inner.kind == "incompatible":
                return inner
            if inner.kind == "unchanged":
                others.append({"name": each.name, "subject": each.subject, "version": inner.version})
        compared = schema
        if len(others) < len(references):
            # A registry compares a schema only if it has all references. An Avro schema can also be sent whole, without
            # references.
            if format != "AVRO" or whole is None:
                return Change(subject, "uncompared")
            compared, others = whole, []
        body = question_of(schema_text(compared, format), format, others)
        normal = ["normalize=true"] if self._registry.settings.normalize_schemas else []
        try:
            found = self._client.ask("POST", _with(path_of("subjects", subject), normal), body)
            return Change(subject, "unchanged", version=found.get("version"))
        except RegistryRefusal as refusal:
            if refusal.status != 404:
                raise
        try:
            versions = self.versions(subject)
        except SchemaRegistryError as error:
            if isinstance(error.__cause__, RegistryRefusal):
                return Change(subject, "new")
            raise
        latest = self._registry.version_of(subject, versions[-1])
        lines = tuple(difference(latest.schema, schema if whole is None else whole))
        compared_with = [] if self._is_transitive(subject) else ["latest"]
        path = path_of("compatibility", "subjects", subject, "versions", *compared_with)
        try:
            answer = self._client.ask("POST", _with(path, [*normal, "verbose=true"]), body)
        except RegistryRefusal as refusal:
            if refusal.status not in (409, 422):
                raise
            return Change(subject, "incompatible", latest, lines, refusal.said)
        if answer.get("is_compatible"):
            return Change(subject, "compatible", latest, lines)
        why = answer.get("messages") or answer.get("reason") or ""
        return Change(subject, "incompatible", latest, lines, why if isinstance(why, str) else "; ".join(why))


def _with(path: str, settings: list[str]) -> str:
    return f"{path}?{'&'.join(settings)}" if settings else path
