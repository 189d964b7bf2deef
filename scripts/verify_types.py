"""Says which public names of streamapp a type checker does not know completely; none is the only good answer.

Pyright counts every module without underscore as public (`pyright --verifytypes`). Here a name counts if it stands in a
module of the table "The edge" in docs/house.md, or belongs to a class that one of these modules exports.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def public_modules(page: str) -> set[str]:
    table = page.split("## The edge\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    names = {name.removeprefix("streamapp.") for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
    return {"streamapp"} | {f"streamapp.{name}" for name in names - {"streamapp"}}


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
    public = public_modules((ROOT / "docs/house.md").read_text())
    found = verified()
    modules = {module["name"] for module in found["modules"]}

    def module_of(name: str) -> str:
        while name and name not in modules:
            name = name.rpartition(".")[0]
        return name

    def parents(name: str) -> set[str]:
        parts = name.split(".")
        return {".".join(parts[:length]) for length in range(1, len(parts) + 1)}

    exported = {
        symbol["name"]
        for symbol in found["symbols"]
        if any(module_of(name) in public for name in [symbol["name"], *symbol.get("alternateNames", [])])
    }
    symbols = [symbol for symbol in found["symbols"] if parents(symbol["name"]) & exported]
    unknown = [symbol for symbol in symbols if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]]
    for symbol in unknown:
        reasons = [d["message"] for d in symbol["diagnostics"] if "docstring" not in d["message"]]
        print(f"{symbol['name']}: {' '.join(' '.join(reasons).split()) or 'a part of it is not known'}")
    print(f"{len(symbols) - len(unknown)} of {len(symbols)} public names have complete types")
    sys.exit(bool(unknown) or len(symbols) < 1000)


main()
