"""The corpus of `hostile_schemas` costs bounded time and memory."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from streamapp import ConfigError
from streamapp.serdes import JsonSchemaSerde
from streamapp.serdes.json_schema_paths import most_paths
from tests.unit.serdes import hostile_schemas

CPU_SECONDS = 60
BYTES = 3 << 30


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))


@pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")
def test_the_corpus_ends_within_its_limits() -> None:
    """A case that loops is killed by the limit of processor time, one that recurses by the stack: the last line names both."""
    done = subprocess.run(
        [sys.executable, "-m", hostile_schemas.__name__],
        preexec_fn=_bounded,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout.splitlines()[-1:], done.stderr[-2_000:])
    lines = done.stdout.splitlines()
    assert lines[-1] == f"all {len(lines) - 1}"
    outcomes = dict(line.rsplit(" ", 1) for line in lines[:-1])
    assert outcomes["JSON Schema, a file"] == outcomes["JSON Schema, a reference elsewhere"] == "refused"
    assert outcomes["JSON Schema, alternatives doubled often"] == "refused"
    assert outcomes["JSON Schema, a deep value"] == outcomes["Protobuf, only numbers"] == "taken"


@pytest.mark.parametrize("case", hostile_schemas.BY_NAME)
def test_references_by_name_count_as_those_by_place(case: str) -> None:
    with pytest.raises(ConfigError, match="may check one value"):
        JsonSchemaSerde(hostile_schemas.BY_NAME[case]).bind("t", False).serialize("x")


def test_a_reference_counts_in_the_schema_with_its_address() -> None:
    many = {"anyOf": [{"type": "integer"}] * 9}
    inner = {"$id": "inner", "$defs": {"a": many}, "properties": {"x": {"$ref": "#/$defs/a"}}}
    assert most_paths({"$id": "http://localhost/root", "$defs": {"a": {}, "inner": inner}}, {}) == 11
    assert (
        most_paths({"$ref": "other#there"}, {"other": {"$defs": {"b": {**many, "$anchor": "there"}}}}) == 11
    )
    assert most_paths({"$id": "http://[", "$ref": "#none"}, {}) == 2
