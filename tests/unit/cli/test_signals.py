"""The end of commands by Ctrl-C and other signals. tests/producer and tests/worker have commands that clean up."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import click
import pytest
from click.testing import CliRunner

from streamapp import cli
from streamapp._base.signals import (
    EndedBySignal,
    cleaning_up,
    signal_behind,
    unlogged_signals,
    without_clean_up,
)

CLEANS_UP = """
import os, sys, time
from streamapp._base.signals import cleaning_up

with cleaning_up():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("cleans up", flush=True)
        sys.stdin.readline()
        print("clean", flush=True)
"""
STOPS = """
import sys, threading
from streamapp._base.signals import stopping

end = threading.Event()
stopping(end.set)
print("ready", flush=True)
end.wait()
print("cleans up", flush=True)
sys.stdin.readline()
print("clean", flush=True)
"""
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
    # Programs in the background of a script ignore the signal, also these tests.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with without_clean_up():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
            signal.signal(signal.SIGINT, lambda number, frame: None)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", [None, "py4j.java_gateway", "py4j.clientserver"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), EndedBySignal(signal.SIGTERM)])
def test_the_traceback_of_a_signal_is_not_logged(
    caplog: pytest.LogCaptureFixture, error: BaseException, name: str | None
) -> None:
    """PySpark logged the traceback of Ctrl-C, and `streamapp sql` ended with this text."""
    for block in (unlogged_signals(), nullcontext()):
        with block:
            try:
                raise error
            except BaseException:
                logging.getLogger(name).exception("a signal while sending command.")
            logging.getLogger(name).error("another error")
    assert caplog.messages == ["another error", "a signal while sending command.", "another error"]


def test_an_ignored_signal_stays_ignored() -> None:
    """Programs in the background of a script ignore Ctrl-C. PySpark's handler stayed, and Ctrl-C ended them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with cleaning_up(), without_clean_up():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.signal(signal.SIGINT, lambda number, frame: None)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_threads_may_run_commands() -> None:
    """Only the main thread may set handlers. In other threads, the command ended with `ValueError`."""
    versions: list[object] = []

    def run() -> None:
        with without_clean_up():
            versions.append(cli.main(["--version"], standalone_mode=False))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(versions) == 1


@pytest.mark.parametrize("code", [CLEANS_UP, STOPS])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_twice_at_once_is_one_signal(code: str, number: signal.Signals) -> None:
    """`timeout` signals the process, and then its group. The second signal ended the process before the clean-up."""
    with started(code) as process:
        for _ in range(20):
            process.send_signal(number)
        out, _ = process.communicate("\n", timeout=60)
        assert out == "cleans up\nclean\n"


@pytest.mark.parametrize("code", [CLEANS_UP, STOPS])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_command_at_once(code: str, number: signal.Signals) -> None:
    """Commands that run until they are stopped ignored it. A second Ctrl-C was only one more exception."""
    with started(code) as process:
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stdout.readline() == "cleans up\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
        assert (out, process.returncode) == ("", -number)


@contextmanager
def started(code: str) -> Iterator[subprocess.Popen[str]]:
    """A process, as in a terminal, after its first line."""
    code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{code}"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_output_that_the_caller_closed_does_not_hide_the_signal() -> None:
    """`streamapp ... >&-` has no sys.stdout, and the signal ended with a traceback."""
    code = "import sys; sys.stdout = None\n" + (
        "from streamapp._base.signals import EndedBySignal, cleaning_up\nwith cleaning_up(): raise EndedBySignal(15)"
    )
    ended = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, timeout=60)
    assert (ended.returncode, ended.stderr) == (-signal.SIGTERM, b"")


def test_causes_that_form_a_cycle_have_no_signal() -> None:
    error, cause = ConnectionError(), ConnectionError()
    error.__cause__, cause.__cause__ = cause, error
    assert signal_behind(error) is None


def test_other_errors_stay(run: Callable[[click.Command], int]) -> None:
    assert run(interrupted(None, ConnectionError())) == 1
    assert run(interrupted(None, click.UsageError("wrong"))) == 2
