"""``streamapp reset``."""

from __future__ import annotations

import click

from streamapp.cli.application import APPLICATION, clear_errors, load

__all__ = ["reset"]


@click.command()
@APPLICATION
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(application: str, yes: bool) -> None:
    """Take APPLICATION back to its beginning: it processes its input anew.

    Deletes its internal topics, the offsets of its consumer group and its state on this machine, after it has shown
    them and asked. Its input and output topics stay as they are. All workers have to be stopped; on other machines their state folders
    are to be deleted too.
    """
    # Imported here, so that the other commands start without what a worker needs.
    from streamapp.runners.worker.clients import admin_client
    from streamapp.runners.worker.reset import plan_reset

    app = load(application)
    with clear_errors():
        planned = plan_reset(app.streams.plan, admin_client(app.config))
        click.echo(planned)
        if not yes:
            click.confirm("Delete this for good?", abort=True)
        planned.carry_out()
    click.echo(f"{planned.group} begins anew when it is started.")
