"""The changelog is made of fragments: each has a name that towncrier takes, and text for users."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\+[a-z0-9-]+\.(added|changed|deprecated|removed|fixed|security)\.md")


def fragments() -> list[Path]:
    return [path for path in sorted((ROOT / "changes").iterdir()) if path.name != "README.md"]


def test_each_fragment_has_a_type_and_text() -> None:
    assert [path.name for path in fragments() if not NAME.fullmatch(path.name)] == []
    assert [path.name for path in fragments() if not path.read_text().strip().endswith(".")] == []


def test_a_release_takes_all_fragments() -> None:
    command = [Path(sys.executable).parent / "towncrier", "build", "--draft", "--version", "9.9.9"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    section = " ".join(done.stdout.split())
    assert section.startswith("## 9.9.9 (")
    assert [path.name for path in fragments() if " ".join(path.read_text().split()) not in section] == []
