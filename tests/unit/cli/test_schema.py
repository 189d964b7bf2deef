"""The texts of ``streamapp schema``."""

from __future__ import annotations

from click.testing import CliRunner

from streamapp.cli import main


def test_the_number_of_records_is_for_each_partition() -> None:
    """`last_records` reads so many of each partition."""
    text = " ".join(CliRunner().invoke(main, ["schema", "check", "--help"]).output.split())
    assert "number of the last records of each partition" in text
