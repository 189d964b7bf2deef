"""``streamapp schema``: shows the schemas of a registry, and compares an application with the registry."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

from streamapp._base.counted import counted
from streamapp.cli.application import APPLICATION, clear_errors, load
from streamapp.cli.text_table import TextTable
from streamapp.errors import ConfigError, SchemaRegistryError, SerializationError
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.subjects import Change, Subjects
from streamapp.runners.connection import registry_of, settings_of
from streamapp.runners.last_records import last_records
from streamapp.serdes.framing import Framing
from streamapp.serdes.schema_diff import difference
from streamapp.serdes.schema_registry import SchemaVersion
from streamapp.topology.schemas import PlannedRecords, PlannedSchema, planned_schemas

__all__ = ["schema_group"]

SUBJECT = click.argument("subject")


@click.group("schema")
def schema_group() -> None:
    """Show the schemas of the registry at STREAMAPP_SCHEMA_REGISTRY_URL, and check an application against them."""


@schema_group.command("list")
def list_() -> None:
    """Show every subject with its latest version."""
    with clear_errors():
        subjects = Subjects(ConfluentSchemaRegistry())
        rule = f"The registry demands {subjects.level()} of subjects without a setting of their own"
        table = TextTable("subject", "version", "id", "format", caption=rule)
        for name in subjects.names():
            latest = subjects.latest(name)
            table.add_row(name, str(latest.version), str(latest.id), latest.format)
    table.print()


@schema_group.command()
@SUBJECT
@click.argument("version", default="latest")
def show(subject: str, version: str) -> None:
    """Print the schema of SUBJECT in VERSION (default: the latest), with its references inserted."""
    with clear_errors():
        click.echo(_text(_version(ConfluentSchemaRegistry(), subject, version).schema))


@schema_group.command()
@SUBJECT
@click.argument("old", required=False)
@click.argument("new", default="latest")
def diff(subject: str, old: str | None, new: str) -> None:
    """Show the changes of SUBJECT from version OLD (default: the version before NEW) to NEW (default: the latest)."""
    with clear_errors():
        registry = ConfluentSchemaRegistry()
        later = _version(registry, subject, new)
        before = [each for each in Subjects(registry).versions(subject) if each < later.version]
        if old is None and not before:
            raise ConfigError(f"{subject} has no version before {later.version}: nothing to compare with")
        earlier = _version(registry, subject, old or str(before[-1]))
    click.echo(f"{subject}: version {earlier.version} (id {earlier.id}) -> {later.version} (id {later.id})")
    for line in difference(earlier.schema, later.schema) or ["the schemas are equal"]:
        click.echo(f"  {line}")


@schema_group.command()
@APPLICATION
@click.option(
    "--records",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Also try to read this number of the last records of each partition.",
)
def check(application: str, records: int) -> None:
    """Compare the schemas of APPLICATION with the registry; the exit code is 1 if a worker could not write.

    A schema that a worker writes must fit the compatibility level of its subject. With --records, the command also
    reads the last records of each partition. The exit code is then also 1 if one of these records cannot be read.
    """
    app = load(application)
    failed = False
    with clear_errors():
        registry = _registry(app)
        subjects = Subjects(registry)
        for planned in planned_schemas(app.streams.plan):
            change = _change(subjects, planned)
            # Others write the records of a source, and may register a newer schema than the source reads with.
            failed |= planned.writes and change.kind in ("incompatible", "missing")
            _tell(change, planned)
            if records and planned.records is not None:
                failed |= _unreadable(app, planned.records, records)
    raise SystemExit(failed)


@schema_group.command()
@APPLICATION
def register(application: str) -> None:
    """Register the schemas that APPLICATION writes.

    Workers with auto.register.schemas=false need their schemas in the registry before a start.
    """
    app = load(application)
    with clear_errors():
        registry = _registry(app)
        subjects = Subjects(registry)
        for planned in planned_schemas(app.streams.plan):
            if planned.writes and planned.registered.version is None:
                registered = planned.registered
                if objection := subjects.objection(planned.subject, registered):
                    raise SchemaRegistryError(objection)
                schema_id = registry.register(
                    planned.subject, registered.schema, registered.format, registered.references
                )
                click.echo(f"{planned.subject}: id {schema_id}")


def _registry(app: Any) -> ConfluentSchemaRegistry:
    return registry_of(app.config) or ConfluentSchemaRegistry()


def _change(subjects: Subjects, planned: PlannedSchema) -> Change:
    registered = planned.registered
    # The own schema of a serde with a pinned version is not written, and may be unknown to the registry.
    change = (
        subjects.change(
            planned.subject, registered.schema, registered.format, registered.references, registered.whole
        )
        if registered.version is None
        else subjects.pinned(planned.subject, registered.version, registered.format)
    )
    objection = subjects.objection(planned.subject, registered)
    return replace(change, kind="incompatible", objection=objection) if objection else change


def _version(registry: ConfluentSchemaRegistry, subject: str, version: str) -> SchemaVersion:
    if version != "latest" and not version.isdecimal():
        raise ConfigError(f'a version is a number or "latest", not {version!r}')
    return registry.version_of(subject, "latest" if version == "latest" else int(version))


def _tell(change: Change, planned: PlannedSchema) -> None:
    role = "writes" if planned.writes else "reads"
    line = f"{change.subject}: {role}, {change.kind}"
    if change.latest is not None:
        to = "to" if change.kind == "pinned" else "with"
        line += f" {to} version {change.latest.version} (id {change.latest.id})"
    click.echo(line)
    for each in change.difference:
        click.echo(f"  {each}")
    if change.why:
        click.echo(f"  the registry says: {change.why}")
    if change.objection:
        click.echo(f"  {change.objection}")


def _unreadable(app: Any, planned: PlannedRecords, count: int) -> bool:
    read = bad = 0
    framing = Framing(planned.serde, None) if planned.is_key else Framing(None, planned.serde)
    for record in last_records(settings_of(app.config), planned.topic, count):
        key, value, _ = framing.joined(record.key, record.value, record.headers)
        data = key if planned.is_key else value
        if data is None:
            continue
        read += 1
        try:
            planned.serde.deserialize(data)
        except SerializationError as error:
            bad += 1
            if bad == 1:
                click.echo(f"  {planned.topic}-{record.partition} at offset {record.offset}: {error}")
    click.echo(f"  {read - bad:,} of the last {counted(read, 'record')} can be read")
    return bad > 0


def _text(schema: Any) -> str:
    return (
        schema
        if isinstance(schema, str) and "\n" in schema
        else json.dumps(schema, indent=2, ensure_ascii=False)
    )
