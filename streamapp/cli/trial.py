"""``streamapp try``: runs one record of a topic through the topology, in this process."""

from __future__ import annotations

import logging
import pdb
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from streamapp.broker.requests import reach
from streamapp.cli.application import APPLICATION, clear_errors, load
from streamapp.desk.desk import read_record
from streamapp.desk.shown import shown
from streamapp.desk.trial import Trial, runs_of, tried
from streamapp.engine.judging import ProcessingFailed
from streamapp.records import OutputRecord
from streamapp.runners.connection import client_of

__all__ = ["show_trial", "try_one"]


@click.command("try")
@APPLICATION
@click.option("--topic", required=True, help="The topic that has the record.")
@click.option("--partition", type=click.IntRange(0), required=True, help="The partition of the record.")
@click.option("--offset", type=click.IntRange(0), required=True, help="The offset of the record.")
@click.option("--debug", is_flag=True, help="Open a debugger where the exception is raised.")
def try_one(application: str, topic: str, partition: int, offset: int, debug: bool) -> None:
    """Run one record of a topic through the topology of APPLICATION, with empty tables. Nothing is written to Kafka."""
    app = load(application)
    with clear_errors():
        reach(client_of(app.config))
        found = read_record(app.config, topic, partition, offset)
    record = OutputRecord(topic, found.key, found.value, found.timestamp, found.headers)
    show_trial(runs_of(app.streams.topology, app.config, record), debug)


def show_trial(run: Callable[[bool], Trial], debug: bool) -> None:
    """Prints the result of a trial. The exit code is 1 if a function raises, even if ``on_error`` handles the error.

    With ``debug``, a debugger opens where the function raises.
    """
    with clear_errors(), _silence():
        trial = tried(_debugged(run) if debug else run)
    if trial.exception is not None:
        click.echo(f"failed: {trial.exception}", err=True)
    for record in trial.outputs:
        click.echo(f"{record.topic}\t{shown(record.key)}\t{shown(record.value)}")
    for (operator, reason), count in trial.drops.items():
        click.echo(f"{operator} drops {count}: {reason}")
    for each in trial.parked:
        click.echo(f"{each.operator} keeps {each.records} for a retry")
    if trial.stops:
        click.echo("a worker stops at the record")
    elif not (trial.outputs or trial.drops or trial.parked):
        click.echo("no output topic gets a record")
    if trial.exception is not None:
        raise SystemExit(1)


def _debugged(run: Callable[[bool], Trial]) -> Callable[[bool], Trial]:
    """``run`` with a debugger at the exception."""

    def debugged(raises: bool) -> Trial:
        try:
            return run(raises)
        except ProcessingFailed as error:
            if raises:
                pdb.post_mortem((error.__cause__ or error).__traceback__)
            raise

    return debugged


@contextmanager
def _silence() -> Iterator[None]:
    """Leaves out warnings and lower levels of the log, which say that a letter was sent. A trial sends no letter."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
