"""Says which names of streamapp a type checker does not know completely; none is the only good answer.

The same as ``pyright --verifytypes streamapp --ignoreexternal``, without the thousands of names that are complete.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def verified() -> dict:
    # Only a Python on the path is asked for its packages: --verifytypes does not read --pythonpath.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["pyright", "--verifytypes", "streamapp", "--ignoreexternal", "--outputjson"]
    environ = {**os.environ, "PATH": path, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    answer = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True)
    found = json.loads(answer.stdout)["typeCompleteness"]
    if not found.get("pyTypedPath"):
        sys.exit("pyright does not find streamapp: run this with the Python that has it, .venv/bin/python")
    return found


def main() -> None:
    symbols = [symbol for symbol in verified()["symbols"] if symbol["isExported"]]
    unknown = [symbol for symbol in symbols if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]]
    for symbol in unknown:
        reasons = [d["message"] for d in symbol["diagnostics"] if "docstring" not in d["message"]]
        print(f"{symbol['name']}: {' '.join(' '.join(reasons).split()) or 'a part of it is not known'}")
    print(f"{len(symbols) - len(unknown)} of {len(symbols)} names have complete types")
    sys.exit(bool(unknown) or len(symbols) < 1000)


main()
