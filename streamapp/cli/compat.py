"""``streamapp compat``."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

import click

from streamapp.cli.application import clear_errors, load
from streamapp.cli.describe import described
from streamapp.topology.compat import Compatibility, Need, compare_topologies

__all__ = ["compat"]


@click.command()
@click.argument("old")
@click.argument("new")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option(
    "--allow",
    type=click.Choice([need.name.lower() for need in Need]),
    default="nothing",
    show_default=True,
    help="The most work that you accept: exit with 0 if the deployment needs no more, with 1 otherwise.",
)
def compat(old: str, new: str, as_json: bool, allow: str) -> None:
    """Say if NEW can replace OLD as it is, or if the deployment needs a migration or a reset, and why.

    OLD and NEW are applications, such as `agents`, or files that `streamapp describe APPLICATION --json` wrote.
    """
    with clear_errors():
        result = compare_topologies(_described(old), _described(new))
    click.echo(_as_json(result) if as_json else str(result))
    if result.need > Need[allow.upper()]:
        raise SystemExit(1)


def _described(name: str) -> Any:
    """The content of a file, or else the description of an application."""
    if not os.path.isfile(name):
        return described(load(name))
    with open(name, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise click.ClickException(f"{name} is not JSON: {error}") from None


def _as_json(result: Compatibility) -> str:
    findings = [{**asdict(finding), "need": finding.need.name.lower()} for finding in result.findings]
    return json.dumps({"need": result.need.name.lower(), "findings": findings}, indent=2)
