"""``streamapp reset``."""

from __future__ import annotations

import os
from typing import Any

import click

from streamapp.cli.application import APPLICATION, clear_errors, load_app

__all__ = ["reset"]


@click.command()
@APPLICATION
@click.option(
    "--datadir", type=click.Path(file_okay=False), help="The state folder, if the workers run with --datadir."
)
@click.option("--yes", is_flag=True, help="Do not ask before deleting.")
def reset(application: str, datadir: str | None, yes: bool) -> None:
    """Delete the progress and the tables of APPLICATION, so that its workers process all input again.

    The command shows what it deletes, and asks first: the internal topics, the offsets of the consumer group, and
    the state on this machine. Tables of agents are deleted, too, because agents read their input again. Input and
    output topics stay as they are, and so do the groups of consumers (`App.consume`).

    Stop all workers first. Delete the state on other machines and in other folders, too: a worker refuses to
    start with old state.
    """
    # Imported here, so that the other commands do not load the worker's libraries.
    from streamapp.app import COMMAND_LINE_DATADIR
    from streamapp.runners.worker.clients import admin_client
    from streamapp.runners.worker.reset import plan_reset

    if datadir is not None:
        os.environ[COMMAND_LINE_DATADIR] = datadir  # as `faust --datadir` does
    app = load_app(application)
    if not hasattr(app, "streams"):
        raise click.ClickException(_without_topology(application, app))
    with clear_errors():
        planned = plan_reset(app, admin_client(app.config))
        click.echo(planned)
        if not yes:
            click.confirm("Delete this for good?", abort=True)
        planned.carry_out()
    click.echo(f"{planned.group} is reset. Start its workers to process the input again.")


def _without_topology(application: str, app: Any) -> str:
    """The steps that take an application without a topology back to its beginning."""
    from streamapp.runners.worker.faust_names import changelogs_of_agents, topics_of_agents

    subjects = [application] if topics_of_agents(app) else []
    subjects += [f"--group {consumer.name}" for consumer in app.consumers]
    changelogs = changelogs_of_agents(app)
    steps = [f"streamapp offsets reset {subject} --to-earliest --execute" for subject in subjects]
    if app.consumers:
        steps.append("with --group, the variable STREAMAPP_BOOTSTRAP_SERVERS has to name the cluster")
    if changelogs:
        steps.insert(0, f"delete the topics {', '.join(changelogs)} and the folder {app.conf.tabledir}")
    return "\n  ".join(
        [
            f"{application} has no topology, so it has no internal topics to reset. Stop all workers, then:",
            *steps,
        ]
    )
