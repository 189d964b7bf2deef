"""``streamapp acls``."""

from __future__ import annotations

import json
from typing import Any

import click

from streamapp.cli.application import APPLICATION, clear_errors, load
from streamapp.config import StreamsConfig
from streamapp.consumer import ReliableConsumer, SyncReliableConsumer
from streamapp.operations.acls import (
    Acl,
    acls_of_agents,
    acls_of_consumers,
    acls_of_leader,
    acls_of_producer,
    acls_of_relay,
    acls_of_topology,
    acls_of_worker,
    as_commands,
)
from streamapp.operations.offsets.subject import Subject
from streamapp.producer import OutboxRelay, ReliableProducer, SyncReliableProducer
from streamapp.runners.connection import connected

__all__ = ["acls"]


def _principal(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """The principal, whose type Kafka needs. Kafka refuses a name alone."""
    kind, colon, name = (value or "User:x").partition(":")
    if not (kind and colon and name):
        raise click.BadParameter(f"{value!r} has no type: give User:{value}")
    return value


@click.command()
@APPLICATION
@click.option(
    "--principal",
    metavar="User:NAME",
    callback=_principal,
    help="The principal that gets the rights (default: User: followed by the application id).",
)
@click.option(
    "--write",
    "writes",
    multiple=True,
    metavar="TOPIC",
    help="A topic to which agents, handlers, a producer or other code send records; several can be given.",
)
@click.option(
    "--relay", is_flag=True, help="APPLICATION is the NAME of `streamapp outbox relay NAME`, not a module."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of kafka-acls commands.")
def acls(
    application: str, principal: str | None, writes: tuple[str, ...], relay: bool, as_json: bool
) -> None:
    """Print the rights (ACLs) that APPLICATION needs, and no others.

    APPLICATION is an App (with or without a topology), a consumer, a producer (module:producer), or an outbox relay.
    The command does not see the topics to which agents, handlers, producers and relays write: name them with --write.
    Workers need the right Create only for topics that do not exist yet. As soon as all topics exist, you can revoke
    Create.
    """
    app = None if relay else load(application, topology=False)
    if not writes and (app is None or isinstance(app, OutboxRelay | ReliableProducer | SyncReliableProducer)):
        raise click.UsageError(f"{application} only writes: name its topics with --write TOPIC")
    with clear_errors():
        config = connected(StreamsConfig(application) if app is None else app.config)
        if app is None or isinstance(app, OutboxRelay):
            found = acls_of_relay(config.application_id, writes)
        elif isinstance(app, ReliableProducer | SyncReliableProducer):
            found = acls_of_producer(app, writes)
        elif isinstance(app, ReliableConsumer | SyncReliableConsumer):
            found = acls_of_consumers(config, [app.status])
        else:
            found = _of_app(app)
    rights = sorted(found | {Acl("topic", topic, "Write") for topic in writes})
    principal = principal or f"User:{config.application_id}"
    if as_json:
        click.echo(json.dumps([acl.as_dict(principal) for acl in rights], indent=2))
    else:
        click.echo("\n".join(as_commands(rights, principal, str(config.bootstrap_servers))))


def _of_app(app: Any) -> set[Acl]:
    from streamapp.runners.worker.agents.topics import changelogs_of_agents, topics_of_agents

    found = acls_of_consumers(app.config, app.consumers)
    found |= acls_of_agents(topics_of_agents(app), changelogs_of_agents(app))
    if not app.conf.topic_disable_leader:
        found |= acls_of_leader(f"{app.conf.id}-__assignor-__leader")
    if not hasattr(app, "streams"):
        return found | acls_of_worker(app.config)
    plan = app.streams.plan
    patterns = any(source.pattern for sub in plan.subtopologies for source in sub.sources)
    return found | acls_of_topology(plan, Subject.of_plan(plan).topics if patterns else {})
