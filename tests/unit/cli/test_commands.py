"""The commands of ``streamapp``, whose modules are imported when a command is asked for."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from streamapp import web
from streamapp.cli import main

NAMES = main.list_commands(click.Context(main))
WITHOUT_IMPORTS = """
import sys
from click.testing import CliRunner
from streamapp.cli import main
assert CliRunner().invoke(main, ["--help"]).exit_code == 0
assert [name for name in sys.modules if name.startswith("streamapp.cli.")] == []
"""
TOO_EARLY = """
import sys, click
from streamapp.cli import main
for name in main.list_commands(click.Context(main)):
    assert main.resolve_command(click.Context(main), [name])[1]
    for slow in ("faust.app.base", "aiohttp", "pyspark"):
        assert slow not in sys.modules, (name, slow)
"""


def resolved(name: str) -> click.Command:
    _, command, _ = main.resolve_command(click.Context(main), [name])
    assert command is not None
    return command


@pytest.mark.parametrize("name", NAMES)
def test_a_command_has_the_name_and_the_first_sentence_under_which_it_is_listed(name: str) -> None:
    listed = main.get_command(click.Context(main), name)
    assert listed is not None
    assert resolved(name).name == name
    assert resolved(name).get_short_help_str(1_000) == listed.get_short_help_str(1_000)


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


def test_the_list_of_commands_imports_no_command() -> None:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_IMPORTS], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr


def test_the_shell_completes_commands_and_their_options() -> None:
    shell = ShellComplete(main, {}, "streamapp", "_STREAMAPP_COMPLETE")
    assert [each.value for each in shell.get_completions([], "des")] == ["describe"]
    assert "--max" in [each.value for each in shell.get_completions(["offsets", "lag"], "--m")]


def test_the_package_of_the_web_server_has_the_names_of_its_page() -> None:
    """docs/views.md names ``streamapp.web.add_routes`` for applications of aiohttp."""
    assert [name for name in web.__all__ if not hasattr(web, name)] == []
    with pytest.raises(AttributeError, match="has no attribute 'add_rotes'"):
        _ = web.add_rotes
