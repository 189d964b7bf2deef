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

    The command shows what it deletes, and asks first: the internal topics, the offsets of the consumer group, and the
    state on this machine. The tables of agents and their changelogs are deleted, too, because agents read their input
    again. APPLICATION may have agents only. Input and output topics stay as they are, and so do the groups of consumers
    (`App.consume`).

    Stop all workers first. Delete the state on other machines and in other folders, too: a worker refuses to
    start with old state.
    """
    # Imported here, so that the other commands do not load the worker's libraries.
    from streamapp.app import COMMAND_LINE_DATADIR
    from streamapp.runners.worker.agents.topics import changelogs_of_agents, topics_of_agents
    from streamapp.runners.worker.clients import admin_client
    from streamapp.runners.worker.reset import plan_reset

    if datadir is not None:
        os.environ[COMMAND_LINE_DATADIR] = datadir  # as `faust --datadir` does
    app = load_app(application)
    if not (hasattr(app, "streams") or topics_of_agents(app) or changelogs_of_agents(app)):
        raise click.ClickException(_of_consumers(application, app))
    with clear_errors():
        planned = plan_reset(app, admin_client(app.config))
        click.echo(planned)
        if not yes:
            click.confirm("Delete this for good?", abort=True)
        planned.carry_out()
    click.echo(f"{planned.group} is reset. Start its workers to process the input again.")


def _of_consumers(application: str, app: Any) -> str:
    """The reason why there is nothing to reset, and the steps that take consumers back."""
    if not app.consumers:
        return f"{application} has no topology, no agents and no consumers, so it has nothing to reset"
    return "\n  ".join(
        [
            f"{application} has only consumers, and a reset never moves the groups of consumers, because their "
            "handlers would repeat calls of other services. To read everything again, stop all workers, let "
            "STREAMAPP_BOOTSTRAP_SERVERS name the cluster, and move each group:",
            *(
                f"streamapp offsets reset --group {consumer.name} --to-earliest --execute"
                for consumer in app.consumers
            ),
        ]
    )
