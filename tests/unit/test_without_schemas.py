"""A plain installation, without the extra ``schemas``."""

from __future__ import annotations

import subprocess
import sys

import pytest

HIDE = "import sys; sys.modules.update(dict.fromkeys(['google', 'jsonschema_rs']))\n"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HIDE + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "code", ["JsonSchemaSerde({'type': 'object'})", "ProtobufSerde(type('A', (), {'DESCRIPTOR': 1}))"]
)
def test_the_last_line_says_what_to_install(code: str) -> None:
    *_, line = run(f"from streamapp import *; {code}").stderr.splitlines()
    assert line.startswith("streamapp.errors.MissingExtraError: this needs the extra schemas")
    assert "pip install 'streamapp[schemas]'" in line


def test_json_schema_without_validation_needs_nothing() -> None:
    code = "from streamapp import *; print(JsonSchemaSerde({}, validate=False).serialize({'a': 1})[5:])"
    assert run(code).stdout == "b'{\"a\":1}'\n"
