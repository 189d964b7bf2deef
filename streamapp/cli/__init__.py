"""The ``streamapp`` command. Each of its commands is a module of this package; this module puts them together."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

__all__ = ["main"]

_COMMANDS = {
    "acls": "streamapp.cli.acls:acls",
    "backfill": "streamapp.cli.backfill:backfill",
    "broker": "streamapp.broker.cli:broker_group",
    "compat": "streamapp.cli.compat:compat",
    "describe": "streamapp.cli.describe:describe",
    "dlq": "streamapp.cli.dlq:dlq_group",
    "doctor": "streamapp.cli.doctor:doctor",
    "offsets": "streamapp.cli.group_offsets:offsets_group",
    "outbox": "streamapp.cli.outbox:outbox_group",
    "pause": "streamapp.cli.pause:pause",
    "reconcile": "streamapp.cli.reconcile:reconcile_command",
    "registry": "streamapp.cli.local_registry:registry_group",
    "replay": "streamapp.cli.replay:replay",
    "reset": "streamapp.cli.reset:reset",
    "resume": "streamapp.cli.pause:resume",
    "schema": "streamapp.cli.schema:schema_group",
    "spark": "streamapp.cli.spark:spark_group",
    "spill": "streamapp.cli.spill:spill_group",
    "sql": "streamapp.cli.sql:sql",
    "topic": "streamapp.cli.topic:topic_group",
    "try": "streamapp.cli.trial:try_one",
    "web": "streamapp.cli.web_users:web_group",
    "worker": "streamapp.cli.worker:worker",
}


class _Commands(click.Group):
    """Imports the module of a command only for this command, because many of the modules import Faust."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


@click.group(cls=_Commands)
@click.version_option(package_name="streamapp")
def main() -> None:
    """Kafka Streams for Python: describe a topology once, run it live, on Spark, and in tests."""
    sys.path.insert(0, os.getcwd())  # as `python -m` does, because the application's module is in this folder
