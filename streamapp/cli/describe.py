"""``streamapp describe``."""

from __future__ import annotations

import json
from typing import Any

import click

from streamapp.cli.application import APPLICATION, load
from streamapp.topology.snapshot import snapshot

__all__ = ["describe", "described"]


@click.command()
@APPLICATION
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart instead.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, which `streamapp compat` compares with a later version. Keep it with each release.",
)
def describe(application: str, mermaid: bool, as_json: bool) -> None:
    """Show the topology of APPLICATION in the format of Kafka Streams' Topology.describe()."""
    app = load(application)
    streams = app.streams
    if as_json:
        click.echo(json.dumps(described(app), indent=2))
        return
    topology = streams.topology
    click.echo(topology.to_mermaid() if mermaid else topology.describe(), nl=False)


def described(app: Any) -> dict[str, Any]:
    """The topology and the agents of an application as JSON values, for `compare_topologies`."""
    # Imported here, so that the other commands do not load the worker's libraries.
    from streamapp.runners.worker.faust_names import agents_snapshot

    return snapshot(app.streams.plan) | {"agents": agents_snapshot(app)}
