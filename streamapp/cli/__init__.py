"""The ``streamapp`` command. Each of its commands is a module of this package; this module puts them together."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from streamapp._base.signals import cleaning_up, signal_behind

__all__ = ["main"]

_COMMANDS = {
    "acls": (
        "streamapp.cli.acls:acls",
        "Print the rights (ACLs) that APPLICATION needs, and no others.",
    ),
    "backfill": (
        "streamapp.cli.backfill:backfill",
        "Run APPLICATION on Spark over the history of its topics, and hand it over to workers.",
    ),
    "broker": (
        "streamapp.broker.cli:broker_group",
        "Run a local Apache Kafka for development, with Java 17 or newer and without Docker.",
    ),
    "compat": (
        "streamapp.cli.compat:compat",
        "Say if NEW can replace OLD as it is, or if the deployment needs a migration or a reset, and why.",
    ),
    "describe": (
        "streamapp.cli.describe:describe",
        "Show the topology of APPLICATION in the format of Kafka Streams' Topology.describe().",
    ),
    "dlq": (
        "streamapp.cli.dlq:dlq_group",
        "List, show, export, edit, try, replay or discard the dead letters of an application.",
    ),
    "doctor": (
        "streamapp.cli.doctor:doctor",
        "Find problems that may make APPLICATION lose records, process them twice, get no records, or stop.",
    ),
    "offsets": (
        "streamapp.cli.group_offsets:offsets_group",
        "Show, move and copy the committed offsets of an application, or of any consumer group.",
    ),
    "outbox": (
        "streamapp.cli.outbox:outbox_group",
        "Create an outbox table in a database, and send the table's records to Kafka.",
    ),
    "pause": (
        "streamapp.cli.pause:pause",
        "Pause the topology in all workers of an application, until `streamapp resume`.",
    ),
    "reconcile": (
        "streamapp.cli.reconcile:reconcile_command",
        "Compare the records of a source with the records of TOPIC; the exit code is 1 if they differ.",
    ),
    "registry": (
        "streamapp.cli.local_registry:registry_group",
        "Run a local schema registry for development, with Java 17 or newer, and without Docker.",
    ),
    "replay": (
        "streamapp.cli.replay:replay",
        "Compute the table or output topic NAME of APPLICATION again on Spark, while the application may go on "
        "running.",
    ),
    "reset": (
        "streamapp.cli.reset:reset",
        "Delete the progress and the tables of APPLICATION, so that its workers process all input again.",
    ),
    "resume": (
        "streamapp.cli.pause:resume",
        "Continue after `streamapp pause` in all workers of an application.",
    ),
    "schema": (
        "streamapp.cli.schema:schema_group",
        "Show the schemas of the registry at STREAMAPP_SCHEMA_REGISTRY_URL, and check an application against them.",
    ),
    "spark": (
        "streamapp.cli.spark:spark_group",
        "Run an application on Spark instead of workers; make archives for clusters.",
    ),
    "spill": (
        "streamapp.cli.spill:spill_group",
        "List the records that a producer keeps on disk in FOLDER, its spill_dir; retry or discard those that brokers "
        "refuse.",
    ),
    "sql": (
        "streamapp.cli.sql:sql",
        "Run the SQL QUERY over the tables of APPLICATION; without QUERY, show the tables and their columns.",
    ),
    "topic": (
        "streamapp.cli.topic:topic_group",
        "Create, list, describe, write, read and delete topics of the Kafka at STREAMAPP_BOOTSTRAP_SERVERS.",
    ),
    "try": (
        "streamapp.cli.trial:try_one",
        "Run one record of a topic through the topology of APPLICATION, with empty tables.",
    ),
    "web": (
        "streamapp.cli.web_users:web_group",
        "Make the users and secrets of the web server (docs/security.md).",
    ),
    "worker": (
        "streamapp.cli.worker:worker",
        "Start a worker of APPLICATION: a module with an `app`, such as `agents`, or `module:attribute`.",
    ),
}
"""Name -> the place of the command, and the first sentence of its help."""


class _Commands(click.Group):
    """Imports the module of a command only if this command runs, because many of the modules import Faust. Until then,
    a stand-in with the first sentence of the help takes the place of the command."""

    def __init__(self, **settings: Any) -> None:
        stand_ins = {name: click.Command(name, help=text) for name, (_, text) in _COMMANDS.items()}
        super().__init__(commands=stand_ins, **settings)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            module, _, attribute = _COMMANDS[name][0].partition(":")
            command = getattr(import_module(module), attribute)
        return name, command, rest

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with cleaning_up():
            return super().__call__(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException:
            raise
        except (Exception, KeyboardInterrupt) as error:
            # click would end with 1 after Ctrl-C, which is a result of some commands, such as reconcile
            ended = signal_behind(error)
            if ended is None:
                raise
            raise ended from None


@click.group(cls=_Commands)
@click.version_option(package_name="streamapp")
def main() -> None:
    """Kafka Streams for Python: describe a topology once, run it live, on Spark, and in tests."""
    sys.path.insert(0, os.getcwd())  # as `python -m` does, because the application's module is in this folder
