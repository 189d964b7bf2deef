"""The JSON of requests to a schema registry, and the schemas in its answers."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from streamapp.errors import SchemaRegistryError, SerializationError
from streamapp.serdes.references import whole_avro
from streamapp.serdes.schema_registry import Schema, SchemaFormat, SchemaReference

__all__ = ["field_of", "guid_from", "plain_references", "question_of", "read_schema", "schema_text"]


def schema_text(schema: Schema, format: SchemaFormat) -> str:
    """The schema as text, in the form in which registries keep schemas of this format.

    >>> schema_text({"type": "array", "items": "long"}, "AVRO")
    '{"type":"array","items":"long"}'
    """
    if format == "PROTOBUF":
        return str(schema)
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def read_schema(found: Any, referenced: Any) -> tuple[SchemaFormat, Schema]:
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


def question_of(text: str, format: SchemaFormat, references: list[dict[str, Any]]) -> dict[str, Any]:
    """The body of a request that looks a schema up or registers it."""
    body: dict[str, Any] = {"schema": text} if format == "AVRO" else {"schema": text, "schemaType": format}
    return {**body, "references": references} if references else body


def plain_references(references: tuple[SchemaReference, ...]) -> tuple[Any, ...]:
    """References as text, which can be a key of a dictionary or the name of a cached answer."""
    return tuple(
        (each.name, each.subject, json.dumps(each.schema), plain_references(each.references))
        for each in references
    )


def field_of(answer: Any, what: str) -> Any:
    if what == "guid" and not answer.get("guid"):
        raise SchemaRegistryError(
            'the schema registry gives no GUIDs, which schema_id_in="header" needs: '
            'Confluent Schema Registry has them since 8.0. Write with schema_id_in="payload"'
        )
    return answer[what]


def guid_from(text: str) -> UUID:
    try:
        return UUID(text)
    except (ValueError, AttributeError, TypeError) as error:
        raise SchemaRegistryError(f"the schema registry gives a GUID that is not valid: {text!r}") from error
