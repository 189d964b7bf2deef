"""``streamapp acls``."""

from __future__ import annotations

import json
from typing import Any

import click

from streamapp.cli.application import APPLICATION, clear_errors, load
from streamapp.operations.acls import acls_of, as_commands
from streamapp.operations.offsets.subject import Subject

__all__ = ["acls"]


@click.command()
@APPLICATION
@click.option(
    "--principal",
    metavar="User:NAME",
    help="The principal that gets the rights (default: User:, and the application's id).",
)
@click.option(
    "--write",
    "writes",
    multiple=True,
    metavar="TOPIC",
    help="A topic to which agents or other code send records; several can be given.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of kafka-acls commands.")
def acls(application: str, principal: str | None, writes: tuple[str, ...], as_json: bool) -> None:
    """Print the rights (ACLs) that the workers of APPLICATION need, and no others.

    Workers need Create only for topics that do not exist yet. You can remove this right afterwards.
    """
    app = load(application)
    plan = app.streams.plan
    with clear_errors():
        patterns = any(source.pattern for sub in plan.subtopologies for source in sub.sources)
        topics = Subject.of_plan(plan).topics if patterns else {}
        found = acls_of(
            plan,
            topics,
            agents=_agents(app),
            tables=_tables(app),
            writes=writes,
            consumers={each.name: each.topics for each in app.consumers},
        )
    principal = principal or f"User:{plan.application_id}"
    if as_json:
        click.echo(json.dumps([acl.as_dict(principal) for acl in found], indent=2))
    else:
        click.echo("\n".join(as_commands(found, principal, str(plan.config.bootstrap_servers))))


def _agents(app: Any) -> list[Any]:
    from streamapp.runners.worker.faust_names import SubtopologyAgent

    return [agent for agent in app.agents.values() if not isinstance(agent, SubtopologyAgent)]


def _tables(app: Any) -> list[str]:
    from streamapp.runners.worker.faust_names import StoreTable

    return [
        table.changelog_topic.get_topic_name()
        for table in app.tables.values()
        if not isinstance(table, StoreTable)
    ]
