"""The command; see the package."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .case import CASE_KINDS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.oracle.wide", description=__doc__)
    parser.add_argument("--seed", default="0", help="any text; the same seed gives the same cases")
    parser.add_argument("--count", type=int, default=100, help="how many cases")
    parser.add_argument("--kind", choices=[*CASE_KINDS, "all"], default="all", help="what they are made of")
    parser.add_argument("--out", type=Path, required=True, help="folder of the case files")
    given = parser.parse_args()
    kinds = list(CASE_KINDS) if given.kind == "all" else [given.kind]
    given.out.mkdir(parents=True, exist_ok=True)
    made: dict[str, list[object]] = {}
    for number in range(given.count):
        # Most cases are graphs of the DSL: there is most to combine.
        kind = kinds[number % len(kinds)] if number % 2 else kinds[0]
        case = CASE_KINDS[kind](f"{given.seed}/{number}")
        name = f"wide_{kind}/{given.seed}_{number:04d}"
        made.setdefault(f"wide_{kind}", []).append({"name": name, **case})
    for family, cases in made.items():
        (given.out / f"{family}.json").write_text(json.dumps(cases, ensure_ascii=False))
    print(f"{given.count} cases in {given.out}")


if __name__ == "__main__":
    main()
