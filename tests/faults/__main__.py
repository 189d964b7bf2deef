"""``make faults``: runs the cases of the fault matrix, and prints a line for each.

python -m tests.faults                        # everything, on one broker and on three
python -m tests.faults zombie kill-at         # the cases whose id begins with one of these
python -m tests.faults --brokers 1 --jobs 3 --json faults.json --markdown docs/faults-table.md
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from . import scenarios
from .brokers import FaultyKafka
from .matrix import Case, Result, cases, run_case


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases whose id begins with one of these")
    parser.add_argument("--brokers", default="1,3", help="sizes of the cluster (default: 1,3)")
    parser.add_argument("--jobs", type=int, default=2, help="cases at the same time (default: 2)")
    parser.add_argument("--port", type=int, default=0, help="of the first broker (default: a free one)")
    parser.add_argument("--folder", type=Path, help="for data, logs and histories (default: a new one)")
    parser.add_argument("--json", type=Path, help="results as JSON, into this file")
    parser.add_argument("--markdown", type=Path, help="results as a table, into this file")
    parser.add_argument("--list", action="store_true", help="show the cases, run none")
    options = parser.parse_args()
    scenarios.load()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="faults-"))
    results: list[Result] = []
    for size in map(int, options.brokers.split(",")):
        chosen = [case for case in cases if size in case.brokers and _chosen(case, options.names)]
        if options.list:
            print(*(f"{size}  {case.id:60} {case.fault}" for case in chosen), sep="\n")
        elif chosen:
            print(f"{len(chosen)} cases on {size} broker(s); histories and logs in {folder}", flush=True)
            for result in _run(chosen, size, options.port, options.jobs, folder):
                results.append(result)
                print(_line(result), flush=True)
                _write(results, options.json, options.markdown)
    held, void = sum(result.ok for result in results), sum(result.void for result in results)
    if not options.list:
        print(f"{held} of {len(results)} cases hold" + (f", {void} void: run them again" if void else ""))
    return held < len(results)


def _chosen(case: Case, names: list[str]) -> bool:
    return not names or any(case.id.startswith(name) for name in names)


def _run(chosen: list[Case], size: int, port: int, jobs: int, folder: Path) -> Iterator[Result]:
    with FaultyKafka(folder / f"kafka-{size}", size, port) as kafka:
        shared = [case for case in chosen if not case.breaks_brokers]
        # Cases that share the link wait for each other. Cases without the link must not wait for them.
        with ThreadPoolExecutor(1) as linked, ThreadPoolExecutor(max(1, jobs - 1)) as pool:
            running = [
                (linked if case.uses_link else pool).submit(run_case, case, kafka, folder) for case in shared
            ]
            for future in as_completed(running):
                yield future.result()
        for case in chosen:
            if case.breaks_brokers:
                yield run_case(case, kafka, folder)


def _line(result: Result) -> str:
    held = " ".join(v.invariant for v in result.verdicts if v.ok)
    broken = "".join(f"\n     {v.invariant}: {v.detail}" for v in result.verdicts if not v.ok)
    error = "" if result.error is None else "\n" + result.error
    mark = "ok  " if result.ok else "VOID" if result.void else "FAIL"
    why = f"\n     {result.dropped_markers}" if result.void else ""
    return f"{mark} {result.seconds:5.0f} s  {result.case.id:58} {held}{broken}{error}{why}"


def _write(results: list[Result], as_json: Path | None, as_markdown: Path | None) -> None:
    if as_json is not None:
        rows = [
            {
                "scenario": r.case.id,
                "faults": r.case.faults,
                "fault": r.case.fault,
                "brokers": r.brokers,
                "verdicts": {v.invariant: v.detail if not v.ok else "holds" for v in r.verdicts},
                "error": r.error,
                "dropped_markers": r.dropped_markers,
                "ok": r.ok,
                "seconds": round(r.seconds, 1),
            }
            for r in results
        ]
        as_json.write_text(json.dumps(rows, indent=2) + "\n")
    if as_markdown is not None:
        lines = [
            "| scenario | brokers | fault | invariants | verdict | seconds |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for r in sorted(results, key=lambda r: (r.brokers, r.case.faults, r.case.id)):
            names = " ".join(v.invariant for v in r.verdicts)
            broken = "driver error" if r.error else ", ".join(v.invariant for v in r.verdicts if not v.ok)
            verdict = "holds" if r.ok else f"void: {broken}" if r.void else f"broken: {broken}"
            lines.append(
                f"| {r.case.id} | {r.brokers} | {r.case.fault} | {names} | {verdict} | {r.seconds:.0f} |"
            )
        as_markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
