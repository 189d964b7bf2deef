"""What the command says of applications that are not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamapp.cli import main


def describe(application: str) -> Result:
    return CliRunner().invoke(main, ["describe", application])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_an_application_is_described(folder: Path) -> None:
    (folder / "described.py").write_text(
        "from streamapp import App, StringSerde\n"
        "text = {'key_serde': StringSerde(), 'value_serde': StringSerde()}\n"
        "app = other = App('described', topology=lambda b: b.stream('in', **text).to('out', **text))\n"
    )
    for name in ("described", "described:other"):
        result = describe(name)
        assert result.exit_code == 0, result.output
        assert "Source: KSTREAM-SOURCE-0000000000 (topics: [in])" in result.output


def test_a_module_that_is_not_there_is_named() -> None:
    assert "there is no module nowhere here" in describe("nowhere").output


def test_an_attribute_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "appless.py").write_text("")
    assert "module appless has no attribute app" in describe("appless").output


def test_an_attribute_error_of_the_module_itself_is_shown(folder: Path) -> None:
    (folder / "mistyped.py").write_text(
        "from streamapp import App, StringSerde\n"
        "text = StringSerde()\n"
        "def describe(builder):\n    builder.stream('a', key_serde=text, value_serde=text).map_valuess(len)\n"
        "app = App('mistyped', topology=describe)\n"
    )
    result = describe("mistyped")
    assert result.exit_code == 1
    assert "KStream has no map_valuess; did you mean map_values?" in result.stderr
    assert "has no attribute app" not in result.stderr


def test_an_error_of_the_module_is_shown_from_the_first_line_of_the_module(folder: Path) -> None:
    (folder / "raising.py").write_text("numbers = []\nnumbers[0]\n")
    (folder / "unfinished.py").write_text("def describe(:\n")
    for name, error in (("raising", "IndexError: "), ("unfinished", "SyntaxError: ")):
        lines = describe(name).stderr.splitlines()
        files = [line for line in lines if line.startswith("  File ")]
        assert [f"{name}.py" in file for file in files] == [True], lines
        assert lines[-1].startswith(error)


def test_a_module_that_the_application_imports_is_named(folder: Path) -> None:
    package = folder / "shopping"
    package.mkdir()
    (package / "__init__.py").write_text("from shopping import orders\nimport shopping.prices\n")
    (package / "orders.py").write_text("")
    result = describe("shopping")
    assert result.exit_code == 1
    assert "No module named 'shopping.prices'" in result.stderr
    assert "there is no module shopping here" not in result.stderr


def test_something_else_than_an_app_is_refused(folder: Path) -> None:
    (folder / "otherwise.py").write_text("app = 1\n")
    assert "otherwise is not a streamapp.App with a topology: 1" in describe("otherwise").output


def test_an_application_without_topology_is_refused_in_words(folder: Path) -> None:
    """The error showed the repr of Faust's application."""
    (folder / "agentful.py").write_text("from streamapp import App\napp = App('alarms')\n")
    result = describe("agentful")
    assert result.exit_code == 1
    assert result.output.strip() == (
        "Error: agentful has agents, consumers or producers only, and this command needs an App with a topology"
    )


def test_an_error_of_the_topology_comes_without_traceback(folder: Path) -> None:
    (folder / "wrong.py").write_text(
        "from streamapp import App\n"
        "def describe(builder):\n    builder.stream('a'); builder.stream('a')\n"
        "app = App('wrong', topology=describe)\n"
    )
    result = describe("wrong")
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")


@pytest.mark.parametrize(("file", "module"), [("a1.py", "a1"), ("./sub/a1.py:other", "sub.a1:other")])
def test_a_file_is_no_module(file: str, module: str) -> None:
    for command in ("describe", "worker"):
        result = CliRunner().invoke(main, [command, file])
        assert result.exit_code == 1
        assert f"named by its module: {module}; run this in the folder" in result.output


def test_a_log_level_that_there_is_not() -> None:
    result = CliRunner().invoke(main, ["worker", "any", "-l", "verbose"])
    assert result.exit_code == 2
    assert "'verbose' is not one of 'crit', 'error', 'warn', 'info', 'debug'" in result.output


def test_a_worker_needs_no_topology(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "handled.py").write_text(
        "from streamapp import App\n"
        "app = App('handled')\n"
        "@app.consume('orders')\n"
        "async def handle(order): ...\n"
    )
    (folder / "appless_consumer.py").write_text(
        "from streamapp.consumer import ReliableConsumer\n"
        "async def handle(order): ...\n"
        "app = ReliableConsumer('alone', 'orders', handle)\n"
    )
    begun: list[list[str]] = []
    monkeypatch.setattr("os.execvp", lambda _, arguments: begun.append(arguments))
    result = CliRunner().invoke(main, ["worker", "handled"])
    assert result.exit_code == 0, result.output
    assert begun[0][1:] == ["-m", "faust", "--quiet", "-A", "handled", "worker"]
    refused = CliRunner().invoke(main, ["worker", "appless_consumer"])
    assert "appless_consumer is not a streamapp.App" in refused.output
    assert len(begun) == 1


def test_faust_send_without_kafka_says_what_to_do(folder: Path) -> None:
    """The error was two tracebacks of aiokafka."""
    (folder / "unheard.py").write_text(
        "from streamapp import App\napp = App('unheard', bootstrap_servers='localhost:1')\n"
    )
    command = [sys.executable, "-m", "faust", "-A", "unheard", "send", "topic", "value"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (result.returncode, "Traceback" in result.stderr) == (1, False), result.stderr
    assert "Kafka cannot be reached at localhost:1" in result.stderr.splitlines()[-1]
