"""The tables that commands print."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from streamapp._base.printable import printable

__all__ = ["TextTable"]

_MOST_WIDTH = 250
"""The most characters of a column. Names of topics have fewer."""
_BORDER = 3
"""The characters beside the text of a column: two spaces and a line."""
_LEAST_ROOM = 8 + _BORDER
"""The room for each column in a terminal."""


class TextTable:
    """A table whose cells are shown as they are: whole, without the markup and the emojis of rich.

    Cells may come from records and exceptions, so a terminal must not obey their control characters. A cell that is
    wider than its column goes on in the next line, because a shortened name of a topic hides its partition. A file or a
    pipe gets a line for each line of a cell, which programs can search. A table of many columns is wider than the
    terminal, because rich leaves out columns that have no room. A column without a heading is for remarks: the table
    leaves the column out if no row has a remark.
    """

    def __init__(self, *columns: str, caption: str | None = None) -> None:
        heads = (Column(_text(name), overflow="fold", max_width=_MOST_WIDTH) for name in columns)
        self._table = Table(*heads, caption=None if caption is None else _text(caption))

    def __len__(self) -> int:
        return self._table.row_count

    def add_row(self, *cells: str) -> None:
        """Adds a row with a text for each column."""
        self._table.add_row(*map(_text, cells))

    def print(self) -> None:
        """Prints the table on the standard output."""
        self._table.columns = [each for each in self._table.columns if each.header or any(each.cells)]
        console = Console(soft_wrap=True)
        room = _LEAST_ROOM if console.is_terminal else _MOST_WIDTH + _BORDER
        console.width = max(console.width, len(self._table.columns) * room + 1)
        console.print(self._table)


def _text(cell: str) -> Text:
    return Text(printable(cell))
