"""The four ways to lose, with few events: ours loses and doubles nothing, and the plain client does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.losses import CASES, losses_table, run_case
from streamapp.broker import LocalKafka

from ..brokers import LightKafka

EVENTS = 3_000


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LightKafka(tmp_path_factory.mktemp("losses"), brokers=1, port=0) as broker:
        yield broker


@pytest.mark.parametrize("case", CASES)
def test_ours_loses_and_doubles_nothing(mortal: LocalKafka, tmp_path: Path, case: str) -> None:
    ours = run_case(mortal, tmp_path, case, "ours", EVENTS)
    assert (ours.sent, ours.confirmed, ours.lost, ours.doubled) == (EVENTS, EVENTS, 0, 0)
    assert losses_table([ours]).row_count == 1


def test_the_judge_sees_losses(mortal: LocalKafka, tmp_path: Path) -> None:
    plain = run_case(mortal, tmp_path, "buffer exhaustion", "plain", 20_000)
    assert plain.lost > 0
    assert plain.sent == plain.confirmed + plain.lost
