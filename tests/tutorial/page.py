"""The tutorial's page as files and steps, which `test_tutorial.py` and `scripts/stopwatch.py` type.

The page is the only source. ``<!-- not run: file NAME, ... -->`` in front of a block names the file; ``<!-- step: ... -->``
says how a command is meant: ``run``, ``background`` (another terminal), ``until TEXT`` (asked again until the answer has the
text), ``skip`` (the installation).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["PAGE", "Step", "files", "steps"]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-application.md"
_FILE = re.compile(r"^<!-- not run: file (\S+),[^\n]*-->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^<!-- step: (\w+) ?([^\n]*?) ?-->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    kind: str
    text: str
    command: str
    section: str
    """The heading above the command."""


def steps() -> list[Step]:
    page = PAGE.read_text()
    headings = [(found.start(), found[1]) for found in re.finditer(r"^## (.*)$", page, re.MULTILINE)]
    return [
        Step(*found.groups(), [name for at, name in headings if at < found.start()][-1])
        for found in _STEP.finditer(page)
    ]


def files() -> list[tuple[str, str]]:
    """The name and the text of each file."""
    return _FILE.findall(PAGE.read_text())
