"""``streamapp web``: users, tokens and the secret of the workers' web servers."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

import click

from streamapp.cli.application import clear_errors
from streamapp.cli.output_file import OutputFile
from streamapp.web.users import make_token, password_line, token_line

__all__ = ["web_group"]

_ROLE = click.option(
    "--role",
    type=click.Choice(["read", "operate"]),
    default="read",
    show_default=True,
    help="read sees everything; operate also pauses, resumes, replays, edits and discards.",
)


@click.group("web")
def web_group() -> None:
    """Make the users and secrets of the web server (docs/security.md)."""


@web_group.command()
@click.argument("name")
@_ROLE
def user(name: str, role: str) -> None:
    """Print the line of a user with a password, to be added to the file of STREAMAPP_WEB_USERS_FILE.

    The command asks for the password. If the standard input is not a terminal, its first line is the password.
    """
    if sys.stdin.isatty():
        password = str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    with clear_errors():
        click.echo(password_line(name, role, password))


@web_group.command()
@click.argument("name")
@_ROLE
@click.option(
    "--to",
    "path",
    type=OutputFile(),
    required=True,
    help="The new file that gets the token; only you can read it.",
)
def token(name: str, role: str, path: Path) -> None:
    """Write a new bearer token for a program to a file, and print its line for the file of STREAMAPP_WEB_USERS_FILE."""
    made = make_token()
    with clear_errors():
        line = token_line(name, role, made)
    _write_new(path, made)
    click.echo(line)


@web_group.command()
@click.option(
    "--to",
    "path",
    type=OutputFile(),
    required=True,
    help="The new file that gets the secret; only you can read it.",
)
def secret(path: Path) -> None:
    """Write a new secret for STREAMAPP_WEB_CLUSTER_SECRET_FILE. All workers of an application need the same secret."""
    _write_new(path, secrets.token_urlsafe(48))


def _write_new(path: Path, text: str) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(handle, "w") as file:
        file.write(text + "\n")
