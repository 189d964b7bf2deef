"""The commands of ``streamapp``, whose modules are imported when a command is asked for."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from streamapp.cli import main

CONTEXT = click.Context(main)
NAMES = main.list_commands(CONTEXT)
TOO_EARLY = """
import sys, click
from streamapp.cli import main
for name in main.list_commands(click.Context(main)):
    assert main.get_command(click.Context(main), name)
    for slow in ("faust.app.base", "aiohttp", "pyspark"):
        assert slow not in sys.modules, (name, slow)
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_command_has_the_name_under_which_it_is_found(name: str) -> None:
    command = main.get_command(CONTEXT, name)
    assert command is not None
    assert command.name == name


def test_the_help_lists_all_commands_in_order() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output.partition("Commands:\n")[2]
    assert [line.split()[0] for line in shown.splitlines()] == sorted(NAMES)


def test_an_unknown_command_is_refused() -> None:
    refused = CliRunner().invoke(main, ["wroker"])
    assert refused.exit_code == 2
    assert "No such command 'wroker'." in refused.output


def test_a_command_is_found_without_faust_web_server_and_spark() -> None:
    result = subprocess.run(
        [sys.executable, "-c", TOO_EARLY], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
