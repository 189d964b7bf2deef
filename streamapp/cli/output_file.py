"""Files that commands write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click

__all__ = ["OutputFile", "obstacle", "writing"]


class OutputFile(click.Path):
    """The type of an option that names a file to write. A file that cannot be written is refused before the command
    begins its work, which may take hours."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if (reason := obstacle(path)) is not None:
            self.fail(reason, param, ctx)
        return path


def obstacle(path: Path) -> str | None:
    """The reason for which a file cannot be written, or None."""
    folder = path.parent
    if not os.path.isdir(folder):  # Path.is_dir raises, for example, for a name that is too long
        return f"there is no folder {folder}: create it first"
    try:
        present = path.exists()
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    if not os.access(path if present else folder, os.W_OK):
        return f"you may not write {path}"
    return None


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """The opened file, in UTF-8. An error of the disk ends the command with the name of the file."""
    try:
        with path.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
