"""``streamapp outbox``: the outbox table of a database, and its relay."""

from __future__ import annotations

import os
import re

import click

from streamapp._base.counted import counted
from streamapp._base.secrets import from_environment
from streamapp._base.signals import stopping
from streamapp.cli.application import clear_errors
from streamapp.errors import ConfigError
from streamapp.producer import OutboxDatabase, OutboxRelay, PostgresOutbox, SqliteOutbox

__all__ = ["outbox_group"]

_VARIABLE = "STREAMAPP_OUTBOX"
_NO_FILE = re.compile(r"://|^postgres|(^|\s)(host|hostaddr|dbname|user|password|port|service)\s*=")
TABLE = click.option(
    "--table",
    default="streamapp_outbox",
    show_default=True,
    help="The table, or schema.table.",
)


@click.group("outbox")
def outbox_group() -> None:
    """Create an outbox table in a database, and send the table's records to Kafka.

    STREAMAPP_OUTBOX holds the address of the database: postgresql://host/name, or the path of an SQLite file. If the
    address has a password, write the address to a file, and give the path of this file in STREAMAPP_OUTBOX_FILE.
    """


@outbox_group.command()
@TABLE
def create(table: str) -> None:
    """Create the outbox table, unless it exists already."""
    with clear_errors():
        database = _database(table)
        try:
            database.create()
        except database.errors as error:
            raise click.ClickException(f"the database at {_VARIABLE} refuses: {error}") from error
    click.echo(f"{table} is there")


@outbox_group.command()
@click.argument("name")
@TABLE
def relay(name: str, table: str) -> None:
    """Send the rows of the outbox to Kafka until Ctrl-C or SIGTERM.

    Readers of committed records see each row once. NAME is the name of your application. Never change the name: the
    rows that were already sent are remembered under this name, and a relay with another name may send them again.
    """
    with clear_errors():
        running = OutboxRelay(name, _database(table))
        stopping(running.stop)
        click.echo(f"{name} relays {table}", err=True)
        running.run()
    click.echo(f"{counted(running.metrics.relayed, 'row')} relayed", err=True)


def _database(table: str) -> OutboxDatabase:
    address = from_environment(os.environ, _VARIABLE)
    if not address:
        raise ConfigError(
            f"{_VARIABLE} is not set: give it postgresql://host/name, or the path of an SQLite file. {_VARIABLE}_FILE may "
            "name a file that holds this address"
        )
    if address.startswith(("postgresql://", "postgres://")):
        return PostgresOutbox(address, table=table)
    if _NO_FILE.search(address):  # SQLite would make a file of this name, with the password in the name
        raise ConfigError(
            f"{_VARIABLE} is neither postgresql://host/name nor the path of an SQLite file: write PostgreSQL's address as "
            "a URL that begins with postgresql://"
        )
    return SqliteOutbox(address, table=table)
