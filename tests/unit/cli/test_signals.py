"""The end of commands by Ctrl-C and other signals. tests/producer and tests/worker have commands that clean up."""

from __future__ import annotations

import signal
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from streamapp import cli
from streamapp._base.signals import EndedBySignal, without_clean_up

FAILED = click.ClickException("3 lines are not written")


def interrupted(failure: Exception | None, error: BaseException) -> click.Command:
    """A command that a signal interrupts, and whose clean-up may fail."""

    @click.command()
    def describe() -> None:
        try:
            raise error
        finally:
            if failure is not None:
                raise failure

    return describe


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[click.Command], int]:
    def run(command: click.Command) -> int:
        monkeypatch.setattr(f"{__name__}.described", command, raising=False)
        monkeypatch.setitem(cli._COMMANDS, "describe", (f"{__name__}:described", "Text."))
        return CliRunner().invoke(cli.main, ["describe"]).exit_code

    return run


@pytest.mark.parametrize("failure", [None, ConnectionError("out of step")])
def test_a_signal_decides_the_end_of_a_command(
    run: Callable[[click.Command], int], failure: Exception | None
) -> None:
    """Ctrl-C ended a command with 1. A clean-up that failed, as on Spark, hid the signal behind a traceback."""
    assert run(interrupted(failure, KeyboardInterrupt())) == 128 + signal.SIGINT
    assert run(interrupted(failure, EndedBySignal(signal.SIGTERM))) == 128 + signal.SIGTERM


def test_a_clean_up_that_tells_of_lost_work_is_heard(run: Callable[[click.Command], int]) -> None:
    assert run(interrupted(FAILED, KeyboardInterrupt())) == 1


def test_handlers_that_a_library_sets_do_not_stay() -> None:
    """With PySpark's handler, Ctrl-C ended a command with a traceback."""
    before = signal.getsignal(signal.SIGINT)
    with without_clean_up():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        signal.signal(signal.SIGINT, lambda number, frame: None)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_errors_stay(run: Callable[[click.Command], int]) -> None:
    assert run(interrupted(None, ConnectionError())) == 1
    assert run(interrupted(None, click.UsageError("wrong"))) == 2
