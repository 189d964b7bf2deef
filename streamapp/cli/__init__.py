"""The ``streamapp`` command. Each of its commands is a module of this package; this module puts them together."""

from __future__ import annotations

import os
import sys

import click

from streamapp.broker.cli import broker_group
from streamapp.cli.acls import acls
from streamapp.cli.backfill import backfill
from streamapp.cli.compat import compat
from streamapp.cli.describe import describe
from streamapp.cli.dlq import dlq_group
from streamapp.cli.doctor import doctor
from streamapp.cli.group_offsets import offsets_group
from streamapp.cli.local_registry import registry_group
from streamapp.cli.outbox import outbox_group
from streamapp.cli.pause import pause, resume
from streamapp.cli.reconcile import reconcile_command
from streamapp.cli.replay import replay
from streamapp.cli.reset import reset
from streamapp.cli.schema import schema_group
from streamapp.cli.spark import spark_group
from streamapp.cli.spill import spill_group
from streamapp.cli.sql import sql
from streamapp.cli.topic import topic_group
from streamapp.cli.trial import try_one
from streamapp.cli.web_users import web_group
from streamapp.cli.worker import worker

__all__ = ["main"]


@click.group()
@click.version_option(package_name="streamapp")
def main() -> None:
    """Kafka Streams for Python: describe a topology once, run it live, on Spark, and in tests."""
    sys.path.insert(0, os.getcwd())  # as `python -m` does, because the application's module is in this folder


for _command in (
    acls,
    backfill,
    broker_group,
    compat,
    describe,
    dlq_group,
    doctor,
    offsets_group,
    registry_group,
    outbox_group,
    pause,
    reconcile_command,
    replay,
    reset,
    resume,
    schema_group,
    spark_group,
    spill_group,
    sql,
    topic_group,
    try_one,
    web_group,
    worker,
):
    main.add_command(_command)
