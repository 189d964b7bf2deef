"""A plain installation, without the extra ``spark``: what needs it says what to install, the rest works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

INSTALL = "pip install 'streamapp[spark]'"
HIDE = "import sys; sys.modules.update(dict.fromkeys({missing!r}))\n"
ALL = ["pyspark", "pyarrow", "pandas", "numpy"]
APP = (
    "from streamapp import *\n"
    "text = {'key_serde': StringSerde(), 'value_serde': StringSerde()}\n"
    "app = App('plain', topology=lambda b: b.stream('in', **text).to('out', **text))\n"
)


def run(
    code: str, folder: Path, *arguments: str, missing: list[str] = ALL
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDE.format(missing=missing) + code, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_everything_else_can_be_imported(tmp_path: Path) -> None:
    result = run(APP + "print(app.config.application_id, 'SparkRunner' in globals())", tmp_path)
    assert (result.stdout, result.returncode) == ("plain False\n", 0), result.stderr


def test_with_spark_the_runner_is_among_them(tmp_path: Path) -> None:
    result = run("from streamapp import *; print(SparkRunner.__name__)", tmp_path, missing=[])
    assert (result.stdout, result.returncode) == ("SparkRunner\n", 0), result.stderr


@pytest.mark.parametrize("missing", [ALL, ["pyspark"], ["numpy"]])
@pytest.mark.parametrize(
    "code", ["import streamapp; streamapp.SparkRunner", "import streamapp.runners.spark.replay"]
)
def test_the_last_line_says_what_to_install(tmp_path: Path, missing: list[str], code: str) -> None:
    *_, line = run(code, tmp_path, missing=missing).stderr.splitlines()
    assert line.startswith("streamapp.errors.MissingExtraError: this needs the extra spark")
    assert ", ".join(missing) in line
    assert INSTALL in line


@pytest.mark.parametrize(
    "command",
    [
        ["replay", "plain", "out", "--diff"],
        ["backfill", "plain"],
        ["sql", "plain", "select 1"],
        ["spark", "run", "plain"],
        ["spark", "package", "app.tar.gz"],
    ],
    ids=" ".join,
)
def test_commands_say_what_to_install_in_one_line(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "plain.py").write_text(APP)
    result = run("from streamapp.cli import main; main()", tmp_path, *command)
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: this needs the extra spark")
    assert INSTALL in line
    assert result.returncode == 1
