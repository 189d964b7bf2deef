"""``streamapp spill``: the local log of a producer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from streamapp._base.counted import counted
from streamapp.cli.application import clear_errors
from streamapp.cli.text_table import TextTable
from streamapp.desk.shown import shown
from streamapp.errors import ConfigError
from streamapp.producer.spill_log import RefusedParcel, SpillLog

__all__ = ["spill_group"]

FOLDER = click.argument("folder", type=click.Path(path_type=Path))
NUMBERS = click.option(
    "--parcel", "numbers", type=int, multiple=True, help="Only this parcel; several can be given."
)


@click.group("spill")
def spill_group() -> None:
    """List the records that a producer keeps on disk in FOLDER, its spill_dir; retry or discard those that brokers
    refuse.

    Stop the producer first. Refused records are listed as parcels. A parcel is a single record, or all records of a
    transaction.
    """


@spill_group.command("list")
@FOLDER
def list_parcels(folder: Path) -> None:
    """Count the records that wait for brokers, and list the records that brokers refuse."""
    with _opened(folder) as log:
        waiting = counted(log.records, "record waits", "records wait")
        click.echo(f"{log.name}: {waiting} for brokers; the next producer sends all of them")
        table = TextTable("parcel", "topic", "key", "value", "bytes", "reason")
        for parcel in log.refused():
            for record in parcel.records:
                key, value = shown(record.key, 30), shown(record.value, 40)
                size = f"{len(record.value or b''):,}"
                table.add_row(str(parcel.number), record.topic, key, value, size, parcel.reason)
        if len(table):
            table.print()
        else:
            click.echo("no record is refused")


@spill_group.command()
@FOLDER
@NUMBERS
def retry(folder: Path, numbers: tuple[int, ...]) -> None:
    """Let the next producer of the folder send refused records again, after all records that wait."""
    with _opened(folder) as log:
        chosen = _chosen(log, numbers)
        for parcel in chosen:
            log.retry(parcel)
    click.echo(f"{counted(_records(chosen), 'record waits', 'records wait')} for brokers again")


@spill_group.command()
@FOLDER
@NUMBERS
@click.confirmation_option(prompt="The records are deleted for good. Go on?")
def discard(folder: Path, numbers: tuple[int, ...]) -> None:
    """Delete refused records for good."""
    with _opened(folder) as log:
        chosen = _chosen(log, numbers)
        for parcel in chosen:
            log.discard(parcel)
    click.echo(f"{counted(_records(chosen), 'record')} deleted")


@contextmanager
def _opened(folder: Path) -> Iterator[SpillLog]:
    with clear_errors():
        log = SpillLog(folder, None, most_bytes=0)
        try:
            yield log
        finally:
            log.close()


def _chosen(log: SpillLog, numbers: tuple[int, ...]) -> list[RefusedParcel]:
    refused = list(log.refused())
    unknown = sorted(set(numbers) - {parcel.number for parcel in refused})
    if unknown:
        raise ConfigError(
            f"no refused parcel has the number {unknown[0]}: see streamapp spill list {log.path}"
        )
    return [parcel for parcel in refused if not numbers or parcel.number in numbers]


def _records(parcels: list[RefusedParcel]) -> int:
    return sum(len(parcel.records) for parcel in parcels)
