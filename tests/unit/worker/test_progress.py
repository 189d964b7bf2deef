"""A worker that gets on with nothing says so, and ends."""

from __future__ import annotations

import pytest

from streamapp.runners.worker.clients import PATIENCE_SECONDS
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.stalls import NoProgressError, Progress
from streamapp.runners.worker.transactions import TransactionAborted


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> Progress:
    return Progress(clock)


def test_one_rollback_may_be_anything_and_two_in_a_row_are_named(progress: Progress, clock: Clock) -> None:
    progress.rolled_back(TransactionAborted("the first"))
    assert progress.stuck is None
    clock.now = 12
    progress.rolled_back(TransactionAborted("out takes nothing"))
    assert progress.stuck is not None
    for part in ("2 attempts in a row", "for 12 s", "TransactionAborted: out takes nothing"):
        assert part in progress.stuck


def test_a_commit_between_them_is_progress(progress: Progress) -> None:
    for _ in range(3):
        progress.rolled_back(TransactionAborted("no"))
        progress.made()
    progress.rolled_back(TransactionAborted("no"))
    assert progress.stuck is None


def test_after_as_long_as_brokers_are_waited_for_it_ends_with_the_last_reason(
    progress: Progress, clock: Clock
) -> None:
    progress.rolled_back(TransactionAborted("no"))
    clock.now = PATIENCE_SECONDS
    progress.rolled_back(TransactionAborted("no"))
    clock.now += 1
    with pytest.raises(NoProgressError, match=r"3 attempts in a row .* TransactionAborted: out of time"):
        progress.rolled_back(TransactionAborted("out of time"))


def test_a_rollback_long_after_another_does_not_end_it_if_there_was_a_commit(
    progress: Progress, clock: Clock
) -> None:
    progress.rolled_back(TransactionAborted("no"))
    progress.made()
    clock.now = 10 * PATIENCE_SECONDS
    progress.rolled_back(TransactionAborted("no"))
    progress.rolled_back(TransactionAborted("no"))
    assert progress.stuck is not None


def test_commits_of_other_tasks_do_not_end_the_rollbacks_in_a_row(progress: Progress, clock: Clock) -> None:
    """A worker whose changelog took nothing was ready between its rollbacks, and never ended."""
    good, bad = TaskId(0, 0), TaskId(1, 0)
    for _ in range(2):
        progress.rolled_back(TransactionAborted("the changelog takes nothing"), [good, bad])
        progress.committed({good}, {good, bad}, {good, bad})
    assert "nothing of tasks 1_0 was committed" in str(progress.stuck)
    clock.now = PATIENCE_SECONDS + 1
    with pytest.raises(NoProgressError, match="nothing of tasks 1_0 could be committed for 301 s"):
        progress.rolled_back(TransactionAborted("the changelog takes nothing"), [bad])


@pytest.mark.parametrize("here", [{0, 1}, {0}], ids=["it commits", "it has left"])
def test_a_task_that_commits_or_leaves_ends_the_rollbacks_in_a_row(
    progress: Progress, here: set[int]
) -> None:
    for _ in range(2):
        progress.rolled_back(TransactionAborted("no"), [TaskId(1, 1)])
    ids = {TaskId(1, number) for number in here}
    progress.committed(ids, ids, ids)
    assert progress.stuck is None


def test_a_task_with_nothing_to_commit_is_not_waited_for_for_ever(progress: Progress, clock: Clock) -> None:
    """A rollback hours after another ended a healthy worker, if a task of the first one had no more work."""
    busy, quiet = TaskId(0, 0), TaskId(1, 0)
    for _ in range(2):
        progress.rolled_back(TransactionAborted("no"), [busy, quiet])
    progress.committed({busy}, {busy, quiet}, {busy, quiet})
    assert progress.stuck is not None
    clock.now = PATIENCE_SECONDS + 1
    progress.committed({busy}, {busy, quiet}, {busy})  # restores
    assert progress.stuck is not None
    progress.committed({busy}, {busy, quiet}, {busy, quiet})
    assert progress.stuck is None
    clock.now = 40 * PATIENCE_SECONDS
    progress.rolled_back(TransactionAborted("no"), [busy, quiet])
    assert progress.stuck is None
