"""The command; see the package."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from .case import CASE_KINDS
from .held import hold_records

FULL = (200, 300, 450, 600, 900, 1_400, 2_500)
"""Bytes of a record cache that is too small for what a case writes."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.oracle.wide", description=__doc__)
    parser.add_argument("--seed", default="0", help="any text; the same seed gives the same cases")
    parser.add_argument("--count", type=int, default=100, help="how many cases")
    parser.add_argument("--kind", choices=[*CASE_KINDS, "all"], default="all", help="what they are made of")
    parser.add_argument(
        "--full-caches", action="store_true", help="record caches are full: 200 to 2,500 bytes"
    )
    parser.add_argument(
        "--held", action="store_true", help="a commit has several records; only topologies of the DSL"
    )
    parser.add_argument(
        "--gathered",
        action="store_true",
        help="the same, without punctuators: records wait for further records",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the case files")
    given = parser.parse_args()
    kinds = list(CASE_KINDS) if given.kind == "all" else [given.kind]
    given.out.mkdir(parents=True, exist_ok=True)
    made: dict[str, list[object]] = {}
    for number in range(given.count):
        # Most cases are graphs of the DSL: there is most to combine.
        kind = kinds[number % len(kinds)] if number % 2 else kinds[0]
        seed = f"{given.seed}/{number}"
        if given.held or given.gathered:
            kind = "dsl"
        case = CASE_KINDS[kind](seed)
        if given.held or given.gathered:
            hold_records(case, seed, gathered=given.gathered)
        if given.full_caches:
            limit = random.Random(f"cache/{seed}").choice(FULL)
            case["config"] = case.get("config", {}) | {"statestore.cache.max.bytes": limit}
        name = f"wide_{kind}/{given.seed}_{number:04d}"
        made.setdefault(f"wide_{kind}", []).append({"name": name, **case})
    for family, cases in made.items():
        (given.out / f"{family}.json").write_text(json.dumps(cases, ensure_ascii=False))
    print(f"{given.count} cases in {given.out}")


if __name__ == "__main__":
    main()
