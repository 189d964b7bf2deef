"""The case files: one JSON list for each family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["CASES", "family", "load"]

CASES = Path(__file__).parent / "cases"


def load(folder: Path = CASES) -> list[dict[str, Any]]:
    """All cases of a folder, in the order of the files and within them."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ValueError(f"no case files (*.json) in {folder}")
    return [case for file in files for case in json.loads(file.read_bytes())]


def family(case: str) -> str:
    """The family of a case's name: ``suppress`` of ``suppress/window_closes``."""
    return case.partition("/")[0]
