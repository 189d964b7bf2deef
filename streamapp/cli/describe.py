"""``streamapp describe``."""

from __future__ import annotations

import json

import click

from streamapp.cli.application import APPLICATION, load
from streamapp.topology.snapshot import snapshot

__all__ = ["describe"]


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
    streams = load(application).streams
    if as_json:
        click.echo(json.dumps(snapshot(streams.plan), indent=2))
        return
    topology = streams.topology
    click.echo(topology.to_mermaid() if mermaid else topology.describe(), nl=False)
