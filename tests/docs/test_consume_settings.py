"""Every setting of a consumer is in `help`, and on the page about consumers, with its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from streamapp.consumer import ConsumeSettings
from streamapp.consumer.consume_options import ConsumeOptions

PAGE = Path(__file__).parents[2] / "docs/consuming.md"
_IN_WORDS = {"key_serde", "value_serde", "commit_interval_ms"}
"""Settings whose default depends on others: the class has None for them."""


def documented(setting: str) -> tuple[str, str]:
    """Two texts about a setting: that of `help`, and that of the page."""
    listed = re.search(rf"^ *- ``{setting}``(.*(?:\n +[^- ].*)*)", str(ConsumeSettings.__doc__), re.MULTILINE)
    row = re.search(rf"^\| `{setting}` \| (.*) \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    assert listed is not None, setting
    assert row is not None, setting
    return listed[1], row[1]


@pytest.mark.parametrize("setting", ConsumeSettings.__annotations__)
def test_a_setting_is_documented_with_its_default(setting: str) -> None:
    listed, row = documented(setting)
    assert "default" in listed
    if setting in _IN_WORDS:
        return
    default = next(field.default for field in fields(ConsumeOptions) if field.name == setting)
    shown = f"{default:,}" if isinstance(default, int) else f'"{default}"' if default is not None else "None"
    ticks = "``" if isinstance(default, str) else ""
    assert listed.startswith(f" (default {ticks}{shown}{ticks}): ")
    assert row.replace("`", "").split(":")[0] == shown


def test_nothing_else_is_documented() -> None:
    assert set(re.findall(r"^ *- ``(\w+)``", str(ConsumeSettings.__doc__), re.MULTILINE)) == {
        *ConsumeSettings.__annotations__
    }
