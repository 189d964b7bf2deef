"""The archive for executors: what is in it, and what is refused. `tests/spark/cluster` runs with one."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamapp.cli import main
from streamapp.runners.spark import package


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an application; archives have little of what streamapp requires, to be fast."""
    monkeypatch.setattr(package, "ROOTS", ("click", "msgspec"))
    (tmp_path / "shop" / "__pycache__").mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").write_text("import helper\n")
    (tmp_path / "shop" / "__pycache__" / "old.pyc").write_bytes(b"")
    (tmp_path / "helper.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["spark", *arguments])


def test_executors_get_what_streamapp_requires_but_not_spark() -> None:
    names = {distribution.name for distribution in package.distributions(["streamapp[spark]"])}
    assert {"streamapp", "confluent-kafka", "rocksdict", "pyarrow", "numpy"} <= names
    assert not names & {"pyspark", "py4j", "pytest"}


def test_executors_get_what_serdes_of_the_application_may_need(code: Path) -> None:
    done = run("package", "app.tar.gz", "shop", "helper.py")
    assert done.exit_code == 0, done.output
    with tarfile.open(code / "app.tar.gz") as tar:
        names = tar.getnames()
    for module in ("jsonschema_rs/__init__.py", "google/protobuf/message.py"):
        assert module in names


def test_a_folder_that_cannot_be_made_is_named(code: Path) -> None:
    refused = run("package", "helper.py/app.tar.gz", "shop")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "Error: the folder helper.py cannot be made: File exists\n",
    )


def test_imports_that_the_archive_lacks_are_named(code: Path) -> None:
    (code / "shop" / "orders.py").write_text(
        "import json\nimport yaml.nodes\nimport click\nimport pyspark\nfrom . import helper\n"
        "from streamapp import App\nimport nothing_like_it\n"
    )
    done = run("package", "app.tar.gz", "shop")
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == [
        "shop/__init__.py imports helper, which is not in the archive: name helper.py, too",
        "shop/orders.py imports yaml, which is not in the archive: add --also PyYAML",
    ]
    done = run("package", "app.tar.gz", "shop", "helper.py", "--also", "pyyaml")
    assert done.stderr == ""


def test_a_bare_python_runs_with_the_archive_alone(code: Path) -> None:
    done = run("package", "dist/app.tar.gz", "shop", "helper.py", "--also", "fastavro")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("dist/app.tar.gz (")
    with tarfile.open(code / "dist" / "app.tar.gz") as tar:
        assert not any("__pycache__" in name for name in tar.getnames())
        tar.extractall(code / "app", filter="data")
    base = Path(sys.base_prefix) / "bin" / "python3"
    script = "import shop, click, fastavro, importlib.util as u; print(u.find_spec('streamapp').origin)"
    ran = subprocess.run([base, "-c", script], env={"PYTHONPATH": "app"}, capture_output=True, text=True)
    assert ran.stdout.strip().endswith("app/streamapp/__init__.py"), ran.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["app.zip"], r"app.zip has to end with .tar.gz"),
        (["app.tar.gz", "shopp"], r"shopp is no folder and no module (.py) here"),
        (["app.tar.gz", "shop", "--also", "nothing-like-it"], "pip install 'nothing-like-it'"),
    ],
)
def test_what_cannot_be_packed_is_named(code: Path, arguments: list[str], message: str) -> None:
    done = run("package", *arguments)
    assert done.exit_code == 1
    assert message in done.output
    assert not (code / "app.tar.gz").exists()


def test_an_archive_that_is_not_there_is_refused_before_spark_starts(code: Path) -> None:
    done = CliRunner().invoke(main, ["sql", "shop", "--archive", "dist/app.tar.gz"])
    assert done.exit_code == 2
    assert "streamapp spark package dist/app.tar.gz" in done.output
