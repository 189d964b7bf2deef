"""Tables of commands: no cell is lost, in a terminal and in a pipe."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from streamapp.cli import text_table
from streamapp.cli.text_table import TextTable

TOPIC = "shop-orders-by-customer-and-day-of-the-week-KSTREAM-AGGREGATE-STATE-STORE-0000000007-repartition"


def printed(capsys: pytest.CaptureFixture[str], *cells: str) -> list[list[str]]:
    """The cells of each printed line with cells, without the heads."""
    table = TextTable(*(f"column {number}" for number in range(len(cells))))
    table.add_row(*cells)
    table.print()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_a_pipe_gets_each_cell_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Names were folded at 80 columns, so `grep` did not find them."""
    assert printed(capsys, f"{TOPIC}-3", "17") == [[f"{TOPIC}-3", "17"]]


def test_a_pipe_gets_the_lines_of_an_extremely_long_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "x" * 600, "17") == [["x" * 250, "17"], ["x" * 250, ""], ["x" * 100, ""]]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_table_of_many_columns_has_all_of_them(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In 80 columns, most columns of such a table were empty."""
    monkeypatch.setattr(
        text_table,
        "Console",
        lambda **given: Console(**given, width=80, force_terminal=terminal, no_color=True),
    )
    cells = [f"value{number}" for number in range(40)]
    assert printed(capsys, *cells) == [cells]


def test_a_column_without_heading_is_for_remarks(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a remark, the lines ended with an empty cell."""
    for remark in ("", "no record"):
        table = TextTable("partition", "")
        table.add_row("flights-0", "")
        table.add_row("flights-1", remark)
        table.print()
    assert re.findall("[│┃](.*)[│┃]", capsys.readouterr().out) == [
        " partition ",
        " flights-0 ",
        " flights-1 ",
        " partition ┃           ",
        " flights-0 │           ",
        " flights-1 │ no record ",
    ]
