"""Files that commands read and write are checked before a command begins its work. No broker runs."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streamapp.cli import main
from streamapp.cli.output_file import obstacle, writing


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("doctor --group g --accept --baseline none/file", "--baseline"),
        ("reconcile t --source source --gap none/file", "--gap"),
        ("reconcile t --source source --report none/file", "--report"),
        ("web token n --to none/file", "--to"),
        ("web secret --to none/file", "--to"),
    ],
)
def test_a_file_in_a_missing_folder_is_refused_first(command: str, option: str) -> None:
    """Without a broker, the commands would wait half a minute, and then report the broker."""
    refused = CliRunner().invoke(main, command.split())
    assert refused.exit_code == 2
    assert option in refused.output
    assert "there is no folder none: create it first" in refused.output


def test_a_folder_and_a_file_of_others_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    assert obstacle(file) is None
    monkeypatch.setattr("os.access", lambda path, mode: path != file)  # root may write everywhere
    file.touch()
    assert obstacle(file) == f"you may not write {file}"


def test_names_that_are_too_long_are_no_traceback() -> None:
    long = "x" * 300
    assert obstacle(Path(long)) == f"{long} cannot be written: File name too long"
    assert obstacle(Path(long, "file")) == f"there is no folder {long}: create it first"


def test_a_full_disk_is_no_traceback() -> None:
    with (
        pytest.raises(click.ClickException, match="/dev/full cannot be written: No space left"),
        writing(Path("/dev/full")) as out,
    ):
        out.write("text")


def test_offsets_that_are_not_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(b"\xff\xfe,0,1\n")
    refused = CliRunner().invoke(main, ["offsets", "reset", "--group", "g", "--from-file", str(file)])
    assert refused.exit_code == 2
    assert "--from-file is not UTF-8" in refused.output


def test_more_partitions_than_a_topic_may_have_are_refused() -> None:
    refused = CliRunner().invoke(main, ["topic", "create", "t", "--partitions", "100001"])
    assert (refused.exit_code, "100001 is not in the range" in refused.output) == (2, True)


def test_an_error_of_something_else_does_not_blame_the_file(tmp_path: Path) -> None:
    """Each `OSError` of the block was an error of the file, for example that of a connection."""
    with pytest.raises(ConnectionResetError, match="by the peer"), writing(tmp_path / "out"):
        raise ConnectionResetError(104, "reset by the peer")
