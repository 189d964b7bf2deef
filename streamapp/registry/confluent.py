"""The client of a schema registry with Confluent's REST interface (Confluent's own, Apicurio Registry, Karapace)."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal
from uuid import UUID

from streamapp.errors import ConfigError, SchemaRegistryError, SerializationError
from streamapp.registry.known_schemas import KnownSchemas
from streamapp.registry.questions import (
    field_of,
    guid_from,
    plain_references,
    question_of,
    read_schema,
    schema_text,
)
from streamapp.registry.registry_settings import RegistrySettings
from streamapp.registry.rest import ForeignAnswer, RegistryAway, RegistryRefusal, RestClient, path_of
from streamapp.serdes.schema_diff import summary
from streamapp.serdes.schema_registry import (
    Schema,
    SchemaFormat,
    SchemaReference,
    SchemaVersion,
    VersionMissing,
)

__all__ = ["ConfluentSchemaRegistry"]

References = tuple[SchemaReference, ...]

logger: logging.Logger = logging.getLogger(__name__)

_NOT_PERMITTED = 42205
"""The code of a registry, or of a subject, that is read-only at the moment."""
_UNKNOWN_SECONDS = 10.0
"""The time for which the client does not ask again for an unknown id."""
_ASKED_AGAIN_SECONDS = 0.5
"""The wait before the second request for an unknown id: a follower of the registry may get a new id later."""
_MOST_ASKED_AGAIN = 5
"""After this number of unknown ids within `_UNKNOWN_SECONDS`, the client makes only one request for each further id.
The values of the topic then probably do not begin with ids at all."""
_MOST_UNKNOWN = 1_000
_MOST_REFERENCES = 1_000
_MOST_COMPARED = 20
"""The number of a subject's newest versions whose formats are compared with the format of a refused schema."""


class ConfluentSchemaRegistry:
    """A client of a schema registry with Confluent's REST interface, which remembers known ids and schemas.

    Without ``url``, the address is the environment variable ``STREAMAPP_SCHEMA_REGISTRY_URL``. ``settings`` are the
    fields of `RegistrySettings`, such as ``basic_auth_user_info``, ``ssl_ca_location`` and ``auto_register_schemas``.
    While the registry gives no usable answer, the client repeats a request for ``patience_ms`` (default: 60 s).
    Afterwards the client raises `SchemaRegistryError`. ``cache`` is a folder in which the client keeps answers. If the
    registry does not answer, and ``cache`` has an earlier answer to the same request, the client uses this answer at
    once.

    >>> ConfluentSchemaRegistry("http://registry:8081", basic_auth_user_info="ada:lovelace")
    ConfluentSchemaRegistry('http://registry:8081')
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        cache: str | os.PathLike[str] | None = None,
        client: RestClient | None = None,
        **settings: Any,
    ) -> None:
        if client is None:
            found = RegistrySettings.from_env(url=url, **settings)
            if found is None:
                raise ConfigError(
                    "the schema registry has no address: give its url, or set STREAMAPP_SCHEMA_REGISTRY_URL"
                )
            client = RestClient(found)
        self.client: RestClient = client
        self.settings: RegistrySettings = client.settings
        self._cache_folder = None if cache is None else os.fspath(cache)
        self._known = None if cache is None else KnownSchemas(cache, self.settings.urls[0])
        self._ids: dict[tuple[Any, ...], int] = {}
        self._guids: dict[tuple[Any, ...], UUID] = {}
        self._versions: dict[tuple[Any, ...], int] = {}
        self._schemas: dict[int | UUID, tuple[SchemaFormat, Schema]] = {}
        self._unknown: dict[int | UUID, tuple[float, str]] = {}
        """Number of a schema -> the time until which the client does not ask for it again, and the reason."""
        self._lock = threading.RLock()
        self._away: tuple[float, RegistryAway] | None = None
        """The last failure of a request that was repeated for ``patience_ms``, and the time of its end."""

    def id_of(
        self, subject: str, schema: Schema, format: SchemaFormat = "AVRO", references: References = ()
    ) -> int:
        """The id of a schema under a subject. A new schema is registered.

        Raises `SchemaRegistryError` if the registry refuses the schema or does not answer, and for a new schema if
        ``auto_register_schemas`` is False.
        """
        text = schema_text(schema, format)
        key = (subject, format, text, plain_references(references))
        known = self._ids.get(key)
        if known is not None:
            return known
        with self._one_at_a_time() as away:
            known = self._ids.get(key)  # another thread may have asked meanwhile
            if known is None:
                known = self._ids[key] = int(self._told("id", subject, text, format, references, away))
                if not references:
                    self._schemas.setdefault(known, (format, schema))
        return known

    def guid_of(
        self, subject: str, schema: Schema, format: SchemaFormat = "AVRO", references: References = ()
    ) -> UUID:
        """The GUID of a schema under a subject. A new schema is registered, as by `id_of`.

        Raises `SchemaRegistryError` as `id_of` does, and if the registry has no GUIDs (Confluent's has GUIDs since
        8.0).
        """
        text = schema_text(schema, format)
        key = (subject, format, text, plain_references(references))
        known = self._guids.get(key)
        if known is not None:
            return known
        with self._one_at_a_time() as away:
            known = self._guids.get(key)
            if known is None:
                known = self._guids[key] = guid_from(
                    self._told("guid", subject, text, format, references, away)
                )
                if not references:
                    self._schemas.setdefault(known, (format, schema))
        return known

    def register(
        self, subject: str, schema: Schema, format: SchemaFormat = "AVRO", references: References = ()
    ) -> int:
        """The id of a schema. A new schema is registered, even if ``auto_register_schemas`` is False."""
        text = schema_text(schema, format)
        return int(self._found("id", subject, text, format, references, patient=True, register=True))

    def schema_of(self, schema_id: int, format: SchemaFormat = "AVRO") -> Schema:
        """The schema with an id, with references inserted (Avro). Raises `SerializationError` for an unknown id."""
        return self._schema(schema_id, path_of("schemas", "ids", schema_id), format)

    def schema_of_guid(self, guid: UUID, format: SchemaFormat = "AVRO") -> Schema:
        """The schema with a GUID, with references inserted (Avro). Raises `SerializationError` for an unknown GUID."""
        return self._schema(guid, path_of("schemas", "guids", str(guid)), format)

    def _schema(self, number: int | UUID, path: str, format: SchemaFormat) -> Schema:
        known = self._schemas.get(number)
        if known is None:
            with self._one_at_a_time() as away:
                known = self._schemas.get(number)
                if known is None:
                    known = self._schemas[number] = self._asked(number, path, away)
        if known[0] != format:
            raise SerializationError(
                f"the schema with {_shown(number)} is {known[0]}, not {format}: read this topic with the serde of its "
                "writer"
            )
        return known[1]

    def version_of(self, subject: str, version: int | Literal["latest"] = "latest") -> SchemaVersion:
        """A version of a subject. Raises `SchemaRegistryError` if the subject does not have the version."""
        path = path_of("subjects", subject, "versions", version)
        found = self._answered(
            f"version {version} of {subject}", lambda patient: self._described(subject, path, patient)
        )
        format, schema = read_schema(found, self._referenced)
        guid = found.get("guid")
        return SchemaVersion(
            subject,
            int(found["version"]),
            int(found["id"]),
            schema,
            format,
            None if guid is None else guid_from(guid),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self.settings, self._cache_folder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfluentSchemaRegistry) and other.settings == self.settings

    def __hash__(self) -> int:
        return hash(self.settings)

    def __repr__(self) -> str:
        return f"ConfluentSchemaRegistry({self.settings.url!r})"

    @contextmanager
    def _one_at_a_time(self) -> Iterator[RegistryAway | None]:
        """Lets one thread ask the registry, while the others wait.

        If the registry does not answer this thread, all threads that have waited get its error. Otherwise each of them
        would be patient after the others, and the last one would wait for many times ``patience_ms``. A thread with an
        earlier answer in the cache goes on with this answer.
        """
        began = self.client.clock()
        with self._lock:
            shared = None if self._away is None or self._away[0] <= began else self._away[1]
            try:
                yield shared
            except RegistryAway as error:
                if shared is None:
                    self._away = self.client.clock(), error
                raise

    def _answered(self, question: str, ask: Any, away: RegistryAway | None = None) -> Any:
        """The registry's answer. If the registry does not answer, an earlier answer from the cache.

        ``away`` is the error of another thread, which has asked the registry for this thread, too.
        """
        kept = None if self._known is None else self._known.read(question)
        try:
            if away is not None:
                raise RegistryAway(str(away))
            answer = ask(kept is None)
        except RegistryAway as error:
            if kept is None:
                raise
            logger.warning("%s; going on with its earlier answer", error)
            return kept
        if self._known is not None:
            self._known.write(question, answer)
        return answer

    def _told(
        self,
        what: str,
        subject: str,
        text: str,
        format: SchemaFormat,
        references: References,
        away: RegistryAway | None,
    ) -> Any:
        """The ``id`` or ``guid`` of a schema under a subject, from the registry or the cache."""
        behind = f" with {plain_references(references)}" if references else ""
        question = f"{what} of {format} {text} under {subject}{behind}"
        return self._answered(
            question, lambda patient: self._found(what, subject, text, format, references, patient), away
        )

    def _found(
        self,
        what: str,
        subject: str,
        text: str,
        format: SchemaFormat,
        references: References,
        patient: bool,
        register: bool | None = None,
    ) -> Any:
        """The field ``what`` (id, GUID or version) of the schema under the subject. A schema that the subject lacks is
        registered, if this is allowed."""
        normal = "?normalize=true" if self.settings.normalize_schemas else ""
        others = [
            {
                "name": each.name,
                "subject": each.subject,
                "version": self._version(each, format, patient, register),
            }
            for each in references
        ]
        body = question_of(text, format, others)
        path = path_of("subjects", subject)
        check = partial(self._check_format, subject, format)
        try:
            for again in (True, False):
                try:
                    return field_of(self._looked_up(path + normal, body, patient, check), what)
                except RegistryRefusal as refusal:
                    if refusal.status != 404:
                        raise
                    if not (self.settings.auto_register_schemas if register is None else register):
                        raise SchemaRegistryError(
                            f"{subject} has no version with the schema that this application writes, and "
                            "auto.register.schemas is off: register the schema first (streamapp schema register). "
                            f"{self._difference(subject, text, format)}"
                        ) from refusal
                try:
                    answer = self.client.ask(
                        "POST",
                        f"{path}/versions{normal}",
                        body,
                        patient=patient,
                        has={"id": int},
                        in_trouble=check,
                    )
                    break
                except RegistryRefusal as refusal:
                    # Some registries refuse a subject or a version that another client registers at the same time.
                    if refusal.status != 409 or not again:
                        raise
            if what not in answer:  # the answer to a registration may have only the id
                answer = self._looked_up(path + normal, body, patient, check)
            return field_of(answer, what)
        except RegistryRefusal as refusal:
            if refusal.status == 409:
                raise SchemaRegistryError(
                    f"the schema registry refuses the new schema of {subject}, which is not compatible with earlier "
                    f"versions ({refusal.said}). {self._difference(subject, text, format)}. Change the schema so that "
                    "it fits, or set another compatibility level for the subject. `streamapp schema check` compares "
                    "schemas before a deployment"
                ) from refusal
            if refusal.status == 422 and refusal.code != _NOT_PERMITTED:
                raise SchemaRegistryError(
                    f"the schema registry refuses the schema of {subject} as invalid ({refusal.said}): {text[:500]}"
                ) from refusal
            raise

    def _looked_up(self, path: str, body: dict[str, Any], patient: bool, check: Callable[[], None]) -> Any:
        has = {"id": int, "version": int}
        return self.client.ask("POST", path, body, patient=patient, has=has, in_trouble=check)

    def _check_format(self, subject: str, format: SchemaFormat) -> None:
        """Raises `SchemaRegistryError` if the subject has schemas of another format only.

        Some registries answer with the status 500 to such a schema, as if they were in trouble. Other registries take
        several formats, so they are really in trouble.
        """

        def format_of(version: int | str) -> SchemaFormat:
            path = path_of("subjects", subject, "versions", version)
            return read_schema(self._described(subject, path, False), self._referenced)[0]

        try:
            latest = format_of("latest")
            if latest == format:
                return
            versions = self.client.ask("GET", path_of("subjects", subject, "versions"), patient=False)
            if not isinstance(versions, list):  # of a proxy
                return
            several = any(format_of(version) == format for version in reversed(versions[-_MOST_COMPARED:]))
        except (SchemaRegistryError, SerializationError):
            return
        if not several:
            raise SchemaRegistryError(
                f"{subject} has schemas of {latest}, so the registry takes no schema of {format}. Write the new "
                "format to another topic, or give the serde another subject_strategy"
            )

    def _version(
        self, reference: SchemaReference, format: SchemaFormat, patient: bool, register: bool | None
    ) -> int:
        """The registry's version of a schema to which another schema refers."""
        text = schema_text(reference.schema, format)
        key = (reference.subject, format, text, plain_references(reference.references))
        known = self._versions.get(key)
        if known is None:
            known = self._versions[key] = int(
                self._found(
                    "version", reference.subject, text, format, reference.references, patient, register
                )
            )
        return known

    def _difference(self, subject: str, text: str, format: SchemaFormat) -> str:
        """A sentence for an error: the difference between the latest version of the subject and a schema that the
        registry has refused."""
        try:
            latest = self.version_of(subject)
        except VersionMissing:
            return f"{subject} has no version yet."
        except SchemaRegistryError as error:
            return f"The latest version of {subject} cannot be read ({error})."
        new = text if format == "PROTOBUF" else json.loads(text)
        return f"Version {latest.version} (id {latest.id}) and the new schema differ: {summary(latest.schema, new)}"

    def _asked(self, number: int | UUID, path: str, away: RegistryAway | None) -> tuple[SchemaFormat, Schema]:
        now = self.client.clock()
        self._unknown = {each: known for each, known in self._unknown.items() if known[0] > now}
        if number in self._unknown:
            raise SerializationError(self._unknown[number][1])
        for again in (True, False) if len(self._unknown) < _MOST_ASKED_AGAIN else (False,):
            try:
                found = self._answered(
                    f"schema {number}",
                    lambda patient: self.client.ask("GET", path, patient=patient, has={"schema": str}),
                    away,
                )
                return read_schema(found, self._referenced)
            except VersionMissing as missing:
                why = f"the schema with {_shown(number)} refers to another schema, and {missing}"
            except (RegistryRefusal, ForeignAnswer) as refusal:
                # A registry without GUIDs answers 404 for the path of GUIDs. The record with the GUID is then the
                # cause, not the registry.
                if refusal.status != 404 or (isinstance(refusal, ForeignAnswer) and isinstance(number, int)):
                    raise
                why = f"the schema registry {self.settings.url} has no schema with {_shown(number)}"
            if again:
                self.client.sleep(_ASKED_AGAIN_SECONDS)
        if len(self._unknown) >= _MOST_UNKNOWN:
            self._unknown.clear()
        self._unknown[number] = self.client.clock() + _UNKNOWN_SECONDS, why
        raise SerializationError(why)

    def _described(self, subject: str, path: str, patient: bool) -> Any:
        try:
            return self.client.ask(
                "GET", path, patient=patient, has={"schema": str, "id": int, "version": int}
            )
        except RegistryRefusal as refusal:
            if refusal.status in (404, 422):
                raise VersionMissing(f"{subject} has no such version: {refusal.said}") from refusal
            raise

    def _referenced(self, references: list[Any]) -> dict[str, Schema]:
        """Name -> definition of all schemas to which a schema refers, directly or indirectly."""
        whole: dict[str, Schema] = {}
        waiting = list(references)
        while waiting:
            each = waiting.pop()
            if each["name"] in whole:
                continue
            if len(whole) == _MOST_REFERENCES:
                raise SerializationError(
                    f"a schema refers to more than {_MOST_REFERENCES} other schemas: reduce its references"
                )
            # With this parameter, the registry also shows versions that were deleted, but not for good, as to Java.
            path = path_of("subjects", each["subject"], "versions", each["version"]) + "?deleted=true"
            found = self._answered(
                f"version {each['version']} of {each['subject']}",
                lambda patient, path=path, each=each: self._described(each["subject"], path, patient),
            )
            whole[each["name"]] = json.loads(found["schema"])
            waiting += found.get("references") or []
        return whole


def _shown(number: int | UUID) -> str:
    return f"id {number}" if isinstance(number, int) else f"GUID {number}"


def _remade(settings: RegistrySettings, cache: str | None) -> ConfluentSchemaRegistry:
    return ConfluentSchemaRegistry(cache=cache, client=RestClient(settings))
