"""Files that commands write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter, FileIO, TextIOWrapper
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
    """The opened file, in UTF-8. An error of the disk ends the command with the name of the file.

    Other errors of the block pass through, also those of other files and of connections.
    """
    with _naming(path):
        disk = _Disk(path, "w")
    with TextIOWrapper(BufferedWriter(disk), encoding="utf-8") as file:
        yield file


class _Disk(FileIO):
    """A file whose errors name the file."""

    def write(self, data: Any, /) -> int:
        with _naming(self.name):
            return super().write(data)

    def close(self) -> None:
        with _naming(self.name):
            super().close()


@contextmanager
def _naming(path: Any) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
