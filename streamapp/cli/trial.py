"""``streamapp try``: runs one record of a topic through the topology, in this process."""

from __future__ import annotations

import pdb
from collections.abc import Callable

import click

from streamapp.cli.application import APPLICATION, clear_errors, load
from streamapp.desk.desk import read_record
from streamapp.desk.shown import shown
from streamapp.desk.trial import Trial, try_record
from streamapp.errors import StreamsError

__all__ = ["show_trial", "try_one"]


@click.command("try")
@APPLICATION
@click.option("--topic", required=True, help="The topic that has the record.")
@click.option("--partition", type=click.IntRange(0), required=True)
@click.option("--offset", type=click.IntRange(0), required=True)
@click.option("--debug", is_flag=True, help="Open a debugger where the exception is raised.")
def try_one(application: str, topic: str, partition: int, offset: int, debug: bool) -> None:
    """Run one record of a topic through the topology of APPLICATION, with empty tables. Nothing is written to Kafka."""
    app = load(application)
    with clear_errors():
        record = read_record(app.config, topic, partition, offset)
    show_trial(
        lambda raises: try_record(
            app.streams.topology,
            app.config,
            topic,
            record.key,
            record.value,
            record.timestamp,
            record.headers,
            raises=raises,
        ),
        debug,
    )


def show_trial(run: Callable[[bool], Trial], debug: bool) -> None:
    """Prints the result of a trial. The exit code is 1 if a function raises, even if ``on_error`` handles the error."""
    failure: BaseException | None = None
    try:
        trial = run(True)
    except StreamsError as error:
        failure = error
        if debug:
            pdb.post_mortem((error.__cause__ or error).__traceback__)
    if failure is not None:
        click.echo(f"failed: {failure}", err=True)
        if debug:
            raise SystemExit(1)
        with clear_errors():
            trial = run(False)
    for record in trial.outputs:
        click.echo(f"{record.topic}\t{shown(record.key)}\t{shown(record.value)}")
    for (operator, reason), count in trial.drops.items():
        click.echo(f"{operator} drops {count}: {reason}")
    for each in trial.parked:
        click.echo(f"{each.operator} keeps {each.records} for a retry")
    if not (trial.outputs or trial.drops or trial.parked):
        click.echo("nothing comes out")
    if failure is not None:
        raise SystemExit(1)
