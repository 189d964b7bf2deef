"""``streamapp describe``."""

from __future__ import annotations

import click

from streamapp.cli.application import APPLICATION, load

__all__ = ["describe"]


@click.command()
@APPLICATION
@click.option("--mermaid", is_flag=True, help="A Mermaid flowchart instead of Kafka Streams' text.")
def describe(application: str, mermaid: bool) -> None:
    """Show the topology of APPLICATION."""
    topology = load(application).streams.topology
    click.echo(topology.to_mermaid() if mermaid else topology.describe(), nl=False)
