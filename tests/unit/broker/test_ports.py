"""Ports that no two processes get, although nobody listens on them yet."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamapp.broker import ports
from streamapp.broker.ports import free_port
from streamapp.errors import BrokerError

NUMBERS = range(19_000, 19_004)
_OTHER = f"""
from streamapp.broker import ports
ports._FREE_PORTS, ports._MOST_TRIES = {NUMBERS!r}, {len(NUMBERS)}
print(ports.free_port(), flush=True)
input()
"""


@contextmanager
def other_process() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that has reserved a port, and the port."""
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("STREAMAPP_CACHE", str(tmp_path))
    monkeypatch.setattr(ports, "_FREE_PORTS", NUMBERS)
    monkeypatch.setattr(ports, "_MOST_TRIES", len(NUMBERS))
    monkeypatch.setattr(ports, "_reserved", set())
    ports._reservations.cache_clear()
    yield
    ports._reservations.cache_clear()


def test_two_processes_get_different_ports_until_one_of_them_ends() -> None:
    """Two tests that ran at the same time chose one port for their workers. One worker could not listen on the port."""
    with other_process() as (process, theirs):
        ours = {free_port() for _ in NUMBERS[1:]}
        assert ours == {*NUMBERS} - {theirs}
        with pytest.raises(BrokerError, match="None of 4 random ports"):
            free_port()
        process.kill()
        process.wait()
        assert free_port() == theirs


def test_a_cache_that_cannot_be_written_hinders_no_port(tmp_path: Path) -> None:
    """A cache may be filled by another user, or be read-only in a container."""
    (tmp_path / "ports.lock").mkdir()
    assert {free_port() for _ in NUMBERS} == {*NUMBERS}


def test_a_cache_without_locks_hinders_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(ports.fcntl, "lockf", refuse)
    assert {free_port() for _ in NUMBERS} == {*NUMBERS}
