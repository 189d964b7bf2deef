"""A few cases of the fault matrix, on one broker. ``make faults`` runs all cases."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ..brokers import SteadyKafka
from . import scenarios
from .brokers import FaultyKafka
from .matrix import Case, Result, cases, run_case

scenarios.load()
SAMPLE = [case for case in cases if case.sampled]
_AT_THE_SAME_TIME = 4
assert not any(case.breaks_brokers for case in SAMPLE)


class Steady(SteadyKafka, FaultyKafka):
    """Its broker keeps its session on a busy machine. Otherwise a case would fail, because the broker is away."""


class Sample:
    """Runs the cases at the same time, because most of them wait for the end of a session."""

    def __init__(self, kafka: FaultyKafka, pool: ThreadPoolExecutor, folder: Path) -> None:
        self._kafka, self._pool, self._folder = kafka, pool, folder
        self._running = {case: pool.submit(run_case, case, kafka, folder) for case in SAMPLE}

    def result(self, case: Case) -> Result:
        if case not in self._running:  # a test that is tried again has to see the case run again
            self._running[case] = self._pool.submit(run_case, case, self._kafka, self._folder / "again")
        return self._running.pop(case).result()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    folder: Path = tmp_path_factory.mktemp("faults")
    with Steady(folder / "kafka", 1) as kafka, ThreadPoolExecutor(_AT_THE_SAME_TIME) as pool:
        yield Sample(kafka, pool, folder)


@pytest.mark.broker
@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.id)
def test_holds(case: Case, sample: Sample) -> None:
    result = sample.result(case)
    assert result.error is None, result.error
    broken = "\n".join(f"{v.invariant}: {v.detail}" for v in result.verdicts if not v.ok)
    assert not broken, f"{broken}\n{result.history}"
