"""``make chaos``: three workers, every family of operator, faults drawn from a seed, and verdicts at the end.

python -m tests.faults.chaos --minutes 30 --seed 7
python -m tests.faults.chaos --judge FOLDER/history.jsonl    # the verdicts of an earlier history
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from ..brokers import FaultyKafka
from ..history import only, read_history
from ..judge import Verdict
from .application import INPUTS, SINKS
from .run import Chaos
from .traffic import CLOSING_MS, STEP_MS
from .verdict import judge_chaos


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="how long faults come (default: 30)")
    parser.add_argument("--seed", type=int, help="of faults and input (default: a new one)")
    parser.add_argument("--workers", type=int, default=3, help="(default: 3)")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3, help="(default: 3)")
    parser.add_argument("--rate", type=int, default=40, help="records each second (default: 40)")
    parser.add_argument("--folder", type=Path, help="for data, logs and history (default: a new one)")
    parser.add_argument(
        "--forget", type=int, metavar="N", help="workers forget each Nth event: the run has to fail"
    )
    parser.add_argument("--judge", type=Path, metavar="HISTORY", help="run nothing: the verdict of a history")
    options = parser.parse_args()
    if options.judge is not None:
        return _print(judge_chaos(read_history(options.judge)))
    if options.minutes * 60 * options.rate * STEP_MS > CLOSING_MS:
        most = CLOSING_MS / STEP_MS / 60 / options.rate
        parser.error(f"event time does not last for so many records: at most {most:.0f} minutes at this rate")
    seed = random.randrange(10_000) if options.seed is None else options.seed
    folder = options.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    print(
        f"seed {seed}, {options.minutes:g} minutes, {options.workers} workers, {options.brokers} brokers; logs in {folder}",
        flush=True,
    )
    began = time.monotonic()
    with FaultyKafka(folder / "kafka", options.brokers) as kafka:
        run = Chaos(kafka, folder / "run", seed, options.workers, options.forget)
        run.run(options.minutes, options.rate)
        dropped = kafka.dropped_markers(run.id)
    print(_report(run, time.monotonic() - began))
    failed = _print(judge_chaos(read_history(run.history.path)))
    if failed:
        print(
            f"history and logs are in {run.folder}; again: --seed {seed} --workers {options.workers} --brokers {options.brokers}"
        )
        print(f"VOID: Kafka ended a transaction without its markers\n{dropped}" if dropped else "")
    elif options.folder is None:
        shutil.rmtree(folder)
    return failed


def _report(run: Chaos, seconds: float) -> str:
    events = list(read_history(run.history.path))
    logs = [path.read_text(errors="replace") for path in sorted(run.folder.glob("*.log"))]
    sent, outputs = only(events, "sent"), only(events, "output")
    return "\n".join(
        [
            f"{seconds:.0f} s; faults: {', '.join(f'{kind} {n}' for kind, n in sorted(run.faults.items()))}",
            f"worker processes: {len(logs)}; steps: {len(run.to_ready)}; "
            f"longest until all were ready: {max(run.to_ready, default=0.0):.1f} s, "
            f"until what was sent was committed: {max(run.to_commit, default=0.0):.1f} s",
            f"records: {len(sent)} in {len(INPUTS)} topics, {len(outputs)} results in {len(SINKS)} topics, "
            f"{len(only(events, 'dead'))} dead letters",
            f"rollbacks: {sum(log.count('begin again at the last commit') for log in logs)}",
        ]
    )


def _print(verdicts: list[Verdict]) -> int:
    for verdict in verdicts:
        print(
            f"{'ok  ' if verdict.ok else 'FAIL'} {verdict.invariant}{': ' * (not verdict.ok)}{verdict.detail}"
        )
    held = all(verdict.ok for verdict in verdicts)
    print("all holds" if held else "BROKEN")
    return not held


if __name__ == "__main__":
    sys.exit(main())
