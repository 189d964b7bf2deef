"""``streamapp describe --json`` and ``streamapp compat``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamapp.cli import main

APP = """
from streamapp import App, Materialized, StringSerde
text = {"key_serde": StringSerde(), "value_serde": StringSerde()}
def describe(b):
    b.stream("in", **text).group_by_key().count(materialized=Materialized("STORE"))
app = App("counting", topology=describe)
"""


@pytest.fixture(autouse=True)
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for module, store in (("compat_one", "counts"), ("compat_two", "tallies")):
        Path(f"{module}.py").write_text(APP.replace("STORE", store))
        described = run("describe", module, "--json")
        assert described.exit_code == 0, described.output
        Path(f"{module}.json").write_text(described.output)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("old", ["compat_one", "compat_one.json"])
def test_applications_and_files_are_compared(old: str) -> None:
    same = run("compat", old, "compat_one.json")
    assert (same.exit_code, same.output.splitlines()[0]) == (0, "The deployment needs: nothing")
    changed = run("compat", old, "compat_two")
    assert changed.exit_code == 1
    assert "migration  store tallies: it was called counts" in changed.output


def test_what_is_allowed_decides_the_exit_code() -> None:
    assert run("compat", "compat_one.json", "compat_two.json", "--allow", "migration").exit_code == 0


def test_findings_as_json() -> None:
    found = json.loads(run("compat", "compat_one.json", "compat_two.json", "--json").output)
    assert found["need"] == "migration"
    assert {"need", "subject", "why", "remedy"} == set(found["findings"][0])


def test_files_that_are_no_descriptions_are_refused() -> None:
    Path("text.json").write_text("no")
    Path("other.json").write_text("{}")
    assert "text.json is not JSON" in run("compat", "text.json", "compat_one").output
    assert "streamapp describe APPLICATION --json" in run("compat", "other.json", "compat_one").output


def test_tables_of_agents_are_compared(tmp_path: Path) -> None:
    agents = """
import datetime
TABLE
@app.agent(app.topic("orders"))
async def count(orders):
    async for _ in orders: pass
"""
    for module, table in (
        ("compat_three", 'tallies = app.Table("tallies", default=int)'),
        (
            "compat_four",
            'tallies = app.Table("tallies", default=int).tumbling(datetime.timedelta(minutes=1))',
        ),
    ):
        Path(f"{module}.py").write_text(APP.replace("STORE", "counts") + agents.replace("TABLE", table))
        Path(f"{module}.json").write_text(run("describe", module, "--json").output)
    for one in ("compat_three", "compat_three.json"):
        assert run("compat", one, "compat_three.json").exit_code == 0
        changed = run("compat", one, "compat_four")
        assert changed.exit_code == 1
        assert (
            "agents' table tallies: its window changes from None to TumblingWindow size 60 s"
            in changed.output
        )
