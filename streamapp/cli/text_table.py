"""The tables that commands print."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from streamapp._base.printable import printable

__all__ = ["TextTable"]


class TextTable:
    """A table whose cells are shown as they are: whole, without the markup and the emojis of rich.

    Cells may come from records and exceptions, so a terminal must not obey their control characters. A cell that is
    wider than its column goes on in the next line, because a shortened name of a topic hides its partition.
    """

    def __init__(self, *columns: str, caption: str | None = None) -> None:
        heads = (Column(_text(name), overflow="fold") for name in columns)
        self._table = Table(*heads, caption=None if caption is None else _text(caption))

    def __len__(self) -> int:
        return self._table.row_count

    def add_row(self, *cells: str) -> None:
        """Adds a row with a text for each column."""
        self._table.add_row(*map(_text, cells))

    def print(self) -> None:
        """Prints the table on the standard output."""
        Console(soft_wrap=True).print(self._table)


def _text(cell: str) -> Text:
    return Text(printable(cell))
