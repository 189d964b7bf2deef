"""The cases of the fault matrix, and the function that runs one of them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .brokers import FaultyKafka
from .driver import Run
from .history import read_history
from .judge import Verdict, judge

__all__ = ["ALO", "EOS", "GUARANTEES", "Case", "Result", "cases", "run_case", "scenario"]

ALO, EOS = "at_least_once", "exactly_once_v2"
GUARANTEES = (ALO, EOS)


@dataclass(frozen=True, eq=False)
class Case:
    """One scenario with one workload and one guarantee."""

    name: str
    faults: tuple[int, ...]
    """The numbers of the fault in the project's catalogue of faults."""
    fault: str
    run: Callable[..., None]
    workload: str
    guarantee: str
    brokers: tuple[int, ...]
    breaks_brokers: bool
    """True if no other case can run on the cluster at the same time."""
    uses_link: bool
    """True if the case breaks the network of link A, which all cases of a cluster share."""
    dead_letters: bool
    arguments: Mapping[str, Any] = field(default_factory=dict)
    sampled: bool = False
    """True if the ordinary tests run this case, too."""

    @property
    def id(self) -> str:
        more = [str(value) for value in self.arguments.values()]
        guarantee = "eos" if self.guarantee == EOS else "alo"
        return f"{self.name}[{'-'.join([self.workload, guarantee, *more])}]"


@dataclass(frozen=True)
class Result:
    case: Case
    brokers: int
    verdicts: list[Verdict]
    seconds: float
    history: Path
    error: str | None = None
    dropped_markers: str | None = None
    """The line that a broker logged when it ended a transaction without its markers (docs/faults.md)."""

    @property
    def ok(self) -> bool:
        return self.error is None and all(verdict.ok for verdict in self.verdicts)

    @property
    def void(self) -> bool:
        """True if the case fails, and Kafka itself made half of a transaction visible. The worker may be right then."""
        return not self.ok and self.dropped_markers is not None


cases: list[Case] = []


def scenario(
    *faults: int,
    fault: str,
    workloads: Iterable[str] = ("count",),
    guarantees: Iterable[str] = GUARANTEES,
    brokers: tuple[int, ...] = (1,),
    breaks_brokers: bool = False,
    uses_link: bool = False,
    dead_letters: bool = False,
    sampled: Iterable[str] = (),
    each: Mapping[str, Iterable[Any]] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a case of a function for each workload, guarantee and value of ``each`` (one argument by name).

    ``sampled`` has the cases that the ordinary tests run, too: the part of their ids after the name.
    """

    def register(run: Callable[..., None]) -> Callable[..., None]:
        name = run.__name__.replace("_", "-")
        ((argument, values),) = each.items() if each else (("", [None]),)
        for workload in workloads:
            for guarantee in guarantees:
                for value in values:
                    arguments = {argument: value} if argument else {}
                    case = Case(
                        name,
                        faults,
                        fault,
                        run,
                        workload,
                        guarantee,
                        brokers,
                        breaks_brokers,
                        uses_link,
                        dead_letters,
                        arguments,
                    )
                    cases.append(replace(case, sampled=case.id.removeprefix(name) in sampled))
        return run

    return register


def run_case(case: Case, kafka: FaultyKafka, folder: Path) -> Result:
    """Runs a case on a cluster, and judges its history. An error of the driver is a part of the result."""
    with kafka.link_in_use if case.uses_link else nullcontext():
        return _run_case(case, kafka, folder)


def _run_case(case: Case, kafka: FaultyKafka, folder: Path) -> Result:
    began = time.monotonic()
    where = folder / f"{case.id}-{len(kafka.numbers)}"
    error = dropped = None
    try:
        run = Run(kafka, where, case.id, case.workload, case.guarantee, case.dead_letters)
        try:
            case.run(run, **case.arguments)
        finally:
            run.close()
            dropped = kafka.dropped_markers(run.id)
    except Exception:
        error = traceback.format_exc()
    history = where / "history.jsonl"
    verdicts = judge(read_history(history))
    return Result(case, len(kafka.numbers), verdicts, time.monotonic() - began, history, error, dropped)
