"""Schema ids from a registry with Confluent's REST interface (Confluent's own, Apicurio Registry, Karapace ...)."""

from __future__ import annotations

import json
import logging
import os
import threading
from typing import Any, Literal

from streamapp.errors import ConfigError, SchemaRegistryError, SerializationError
from streamapp.registry.known_schemas import KnownSchemas
from streamapp.registry.references import whole_avro
from streamapp.registry.registry_settings import RegistrySettings
from streamapp.registry.rest import RegistryAway, RegistryRefusal, RestClient, path_of
from streamapp.serdes.schema_diff import summary
from streamapp.serdes.schema_registry import Schema, SchemaFormat, SchemaVersion

__all__ = ["ConfluentSchemaRegistry", "schema_text"]

logger: logging.Logger = logging.getLogger(__name__)

_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
_UNKNOWN_SECONDS = 10.0
"""The time for which an id without schema is not asked for again."""
_ASKED_AGAIN_SECONDS = 0.5
"""A follower of the registry may learn of a new id a moment later."""
_MOST_ASKED_AGAIN = 5
"""More unknown ids at a time are no followers that lag behind, but bytes that are no ids."""
_MOST_UNKNOWN = 1_000
_MOST_REFERENCES = 1_000


class ConfluentSchemaRegistry:
    """A client of a schema registry. Each id and schema is asked for once in the life of a process.

    Without ``url`` the environment decides (``STREAMAPP_SCHEMA_REGISTRY_URL`` ...). ``settings`` are the fields of
    `RegistrySettings`: ``basic_auth_user_info``, ``bearer_auth_token``, ``ssl_ca_location``,
    ``auto_register_schemas`` ... With ``cache`` (a folder) a process that starts while the registry is away goes on
    with the answers of earlier processes.

    A registry that does not answer is asked again for ``patience_ms``, then `SchemaRegistryError` is raised.

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
                    "the schema registry has no address: give it one, or set STREAMAPP_SCHEMA_REGISTRY_URL"
                )
            client = RestClient(found)
        self.client: RestClient = client
        self.settings: RegistrySettings = client.settings
        self._cache_folder = None if cache is None else os.fspath(cache)
        self._known = None if cache is None else KnownSchemas(cache, self.settings.urls[0])
        self._ids: dict[tuple[str, str, str], int] = {}
        self._schemas: dict[int, tuple[SchemaFormat, Schema]] = {}
        self._unknown: dict[int, float] = {}
        self._lock = threading.RLock()

    def id_of(self, subject: str, schema: Schema, format: SchemaFormat = "AVRO") -> int:
        """The id of a schema under a subject; a new schema is registered, unless ``auto_register_schemas`` is off."""
        text = schema_text(schema, format)
        key = (subject, format, text)
        known = self._ids.get(key)
        if known is not None:
            return known
        question = f"id of {format} {text} under {subject}"
        with self._lock:
            schema_id = int(
                self._answered(question, lambda patient: self._found(subject, text, format, patient))
            )
            self._ids[key] = schema_id
            self._schemas.setdefault(schema_id, (format, schema))
        return schema_id

    def register(self, subject: str, schema: Schema, format: SchemaFormat = "AVRO") -> int:
        """The id of a schema, which is registered if it is new, whatever ``auto_register_schemas`` says."""
        return self._found(subject, schema_text(schema, format), format, patient=True, register=True)

    def schema_of(self, schema_id: int, format: SchemaFormat = "AVRO") -> Schema:
        """The schema with that id, references resolved (Avro); `SerializationError` if there is none."""
        known = self._schemas.get(schema_id)
        if known is None:
            with self._lock:
                known = self._schemas[schema_id] = self._asked(schema_id)
        if known[0] != format:
            raise SerializationError(
                f"the schema with id {schema_id} is {known[0]}, not {format}: does another serde write this topic?"
            )
        return known[1]

    def version_of(self, subject: str, version: int | Literal["latest"] = "latest") -> SchemaVersion:
        """A version of a subject; `SchemaRegistryError` if there is none."""
        path = path_of("subjects", subject, "versions", version)
        found = self._answered(
            f"version {version} of {subject}", lambda patient: self._described(subject, path, patient)
        )
        format, schema = _read(found, self._referenced)
        return SchemaVersion(subject, int(found["version"]), int(found["id"]), schema, format)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self.settings, self._cache_folder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfluentSchemaRegistry) and other.settings == self.settings

    def __hash__(self) -> int:
        return hash(self.settings)

    def __repr__(self) -> str:
        return f"ConfluentSchemaRegistry({self.settings.url!r})"

    def _answered(self, question: str, ask: Any) -> Any:
        """The registry's answer; while nobody answers, the one that an earlier process got."""
        kept = None if self._known is None else self._known.read(question)
        try:
            answer = ask(kept is None)
        except RegistryAway as error:
            if kept is None:
                raise
            logger.warning("%s; going on with its earlier answer", error)
            return kept
        if self._known is not None:
            self._known.write(question, answer)
        return answer

    def _found(
        self, subject: str, text: str, format: SchemaFormat, patient: bool, register: bool | None = None
    ) -> int:
        """The id under the subject. The registry is asked to look before it is asked to register."""
        normal = "?normalize=true" if self.settings.normalize_schemas else ""
        body = {"schema": text} if format == "AVRO" else {"schema": text, "schemaType": format}
        path = path_of("subjects", subject)
        try:
            try:
                return int(self.client.ask("POST", path + normal, body, patient=patient)["id"])
            except RegistryRefusal as refusal:
                if refusal.status != 404:
                    raise
                if not (self.settings.auto_register_schemas if register is None else register):
                    raise SchemaRegistryError(
                        f"{subject} has no version with the schema that this application writes, and auto.register.schemas "
                        f"is off: register it first (streamapp schema register). {self._difference(subject, text, format)}"
                    ) from refusal
            return int(self.client.ask("POST", f"{path}/versions{normal}", body, patient=patient)["id"])
        except RegistryRefusal as refusal:
            if refusal.status == 409:
                raise SchemaRegistryError(
                    f"the schema registry refuses the new schema of {subject}: it is not compatible with the versions "
                    f"before ({refusal.said}). {self._difference(subject, text, format)}"
                ) from refusal
            if refusal.status == 422:
                raise SchemaRegistryError(
                    f"the schema registry takes the schema of {subject} for invalid ({refusal.said}): {text[:500]}"
                ) from refusal
            raise

    def _difference(self, subject: str, text: str, format: SchemaFormat) -> str:
        """The latest version beside the schema that is refused."""
        try:
            latest = self.version_of(subject)
        except SchemaRegistryError:
            return f"{subject} has no version yet."
        new = text if format == "PROTOBUF" else json.loads(text)
        return f"Version {latest.version} (id {latest.id}) and the new schema differ: {summary(latest.schema, new)}"

    def _asked(self, schema_id: int) -> tuple[SchemaFormat, Schema]:
        now = self.client.clock()
        if self._unknown.get(schema_id, now) > now:
            raise _no_schema(schema_id, self.settings.url)
        self._unknown = {number: until for number, until in self._unknown.items() if until > now}
        path = path_of("schemas", "ids", schema_id)
        for again in (True, False) if len(self._unknown) < _MOST_ASKED_AGAIN else (False,):
            try:
                found = self._answered(
                    f"schema {schema_id}", lambda patient: self.client.ask("GET", path, patient=patient)
                )
                return _read(found, self._referenced)
            except RegistryRefusal as refusal:
                if refusal.status != 404:
                    raise
                if again:
                    self.client.sleep(_ASKED_AGAIN_SECONDS)
        if len(self._unknown) >= _MOST_UNKNOWN:
            self._unknown.clear()
        self._unknown[schema_id] = self.client.clock() + _UNKNOWN_SECONDS
        raise _no_schema(schema_id, self.settings.url)

    def _described(self, subject: str, path: str, patient: bool) -> Any:
        try:
            return self.client.ask("GET", path, patient=patient)
        except RegistryRefusal as refusal:
            if refusal.status in (404, 422):
                raise SchemaRegistryError(f"{subject} has no such version: {refusal.said}") from refusal
            raise

    def _referenced(self, references: list[Any]) -> dict[str, Schema]:
        """Name -> definition of everything that a schema refers to, directly or not."""
        whole: dict[str, Schema] = {}
        waiting = list(references)
        while waiting:
            each = waiting.pop()
            if each["name"] in whole:
                continue
            if len(whole) == _MOST_REFERENCES:
                raise SerializationError(f"a schema refers to more than {_MOST_REFERENCES} others")
            path = path_of("subjects", each["subject"], "versions", each["version"])
            found = self._answered(
                f"version {each['version']} of {each['subject']}",
                lambda patient, path=path, each=each: self._described(each["subject"], path, patient),
            )
            whole[each["name"]] = json.loads(found["schema"])
            waiting += found.get("references") or []
        return whole


def schema_text(schema: Schema, format: SchemaFormat) -> str:
    """The schema as registries keep it.

    >>> schema_text({"type": "array", "items": "long"}, "AVRO")
    '{"type":"array","items":"long"}'
    """
    if format == "PROTOBUF":
        return str(schema)
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def _read(found: Any, referenced: Any) -> tuple[SchemaFormat, Schema]:
    try:
        format: SchemaFormat = found.get("schemaType") or "AVRO"
        text: str = found["schema"]
        if format == "PROTOBUF":
            return format, text
        schema: Schema = json.loads(text)
        references = found.get("references") or []
        if format == "AVRO" and references:
            schema = whole_avro(schema, referenced(references))
        return format, schema
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SerializationError(f"the schema registry's answer is no schema: {error!r}") from error


def _no_schema(schema_id: int, url: str) -> SerializationError:
    return SerializationError(f"the schema registry {url} has no schema with id {schema_id}")


def _remade(settings: RegistrySettings, cache: str | None) -> ConfluentSchemaRegistry:
    return ConfluentSchemaRegistry(cache=cache, client=RestClient(settings))
