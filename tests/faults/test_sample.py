"""A few cases of the fault matrix, each of another kind, on one broker; ``make faults`` runs all of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from . import scenarios
from .brokers import FaultyKafka
from .matrix import Case, Result, cases, run_case

scenarios.load()
SAMPLE = [case for case in cases if case.sampled]
_AT_THE_SAME_TIME = 4


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Case, Future[Result]]]:
    """The cases run beside each other: most of their time they wait for a session to end."""
    folder: Path = tmp_path_factory.mktemp("faults")
    with FaultyKafka(folder / "kafka", 1) as kafka, ThreadPoolExecutor(_AT_THE_SAME_TIME) as pool:
        yield {case: pool.submit(run_case, case, kafka, folder) for case in SAMPLE}


@pytest.mark.broker
@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.id)
def test_holds(case: Case, results: dict[Case, Future[Result]]) -> None:
    result = results[case].result()
    assert result.error is None, result.error
    assert [v for v in result.verdicts if not v.ok] == [], result.history
