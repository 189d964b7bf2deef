"""``streamapp reset``."""

from __future__ import annotations

import os

import click

from streamapp.cli.application import APPLICATION, clear_errors, load

__all__ = ["reset"]


@click.command()
@APPLICATION
@click.option(
    "--datadir", type=click.Path(file_okay=False), help="Folder of the state, if the worker was given one."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(application: str, datadir: str | None, yes: bool) -> None:
    """Take APPLICATION back to its beginning: it processes its input anew.

    Deletes its internal topics, the offsets of its consumer group and its state on this machine, after it has shown
    them and asked. Its input and output topics stay as they are. All workers have to be stopped; their state on other machines and in
    other folders is to be deleted too: they refuse to start with it.
    """
    # Imported here, so that the other commands start without what a worker needs.
    from streamapp.app import COMMAND_LINE_DATADIR
    from streamapp.runners.worker.clients import admin_client
    from streamapp.runners.worker.reset import plan_reset

    if datadir is not None:
        os.environ[COMMAND_LINE_DATADIR] = datadir  # as `faust --datadir` does
    app = load(application)
    with clear_errors():
        planned = plan_reset(app.streams.plan, admin_client(app.config))
        click.echo(planned)
        if not yes:
            click.confirm("Delete this for good?", abort=True)
        planned.carry_out()
    click.echo(f"{planned.group} begins anew when it is started.")
