"""What mypy and pyright say of the files of a user in strict mode."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[2]


def mypy(files: list[Path]) -> list[str]:
    """The lines that mypy prints; its cache is not that of the project, whose settings differ."""
    arguments = [
        "--strict",
        "--no-error-summary",
        "--follow-imports=silent",
        f"--cache-dir={ROOT / '.mypy_cache' / 'user'}",
        f"--config-file={ROOT / 'pyproject.toml'}",
    ]
    return str(api.run([*arguments, *map(str, files)])[0]).splitlines()


def pyright(files: list[Path]) -> list[str]:
    """The errors that pyright finds, written as those of mypy."""
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    answer = subprocess.run(
        [*command, *map(str, files)], cwd=files[0].parent, stdout=subprocess.PIPE, text=True
    )
    report = json.loads(answer.stdout)
    assert report["summary"]["filesAnalyzed"] == len(files)
    return [
        f"{found['file']}:{found['range']['start']['line'] + 1}: {found['severity']}: {found['message']}"
        for found in report["generalDiagnostics"]
    ]


def refused(output: list[str], file: str) -> set[int]:
    """The numbers of the lines of a file that a type checker refuses."""
    found = (re.match(rf"(?:.*/)?{re.escape(file)}:(\d+): error:", line) for line in output)
    return {int(match[1]) for match in found if match}
