"""SA702 without an answer about transactions: no transaction is called hanging."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest

from streamapp.operations.doctor.checks import transaction_checks
from streamapp.records import TopicPartition

HELD = TopicPartition("flights", 0)


class Survey:
    """A partition with an open transaction; ``looks`` has what each look at transactions finds (None: refused)."""

    def __init__(self, *looks: Any, hides_transactions: bool = False) -> None:
        self._looks = [*looks]
        self.hides_transactions = hides_transactions
        self.unseen: list[str] = []

    @cached_property
    def transactions(self) -> Any:
        return self._looks.pop(0)

    @cached_property
    def stable_ends(self) -> dict[TopicPartition, int]:
        return {HELD: 5}

    def ends(self, partitions: Any) -> dict[TopicPartition, int]:
        return {HELD: 9}


@pytest.mark.parametrize(
    ("looks", "found"), [((None,), 0), (((), None), 0), (((), ()), 1)], ids=["unseen", "lost", "seen"]
)
def test_a_transaction_hangs_only_if_both_looks_are_answered(
    monkeypatch: pytest.MonkeyPatch, looks: Any, found: int
) -> None:
    monkeypatch.setattr(transaction_checks, "_SETTLE_SECONDS", 0)
    survey: Any = Survey(*looks)
    assert len([*transaction_checks.hanging_transaction(survey)]) == found


def test_brokers_that_may_hide_a_transaction_are_no_proof_that_it_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_checks, "_SETTLE_SECONDS", 0)
    survey: Any = Survey((), (), hides_transactions=True)
    assert [*transaction_checks.hanging_transaction(survey)] == []
    (line,) = survey.unseen
    assert line.startswith(
        "the transaction that holds flights-0 at offset 5: it hangs, or this client has no DESCRIBE"
    )
