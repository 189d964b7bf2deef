"""``streamapp pause`` with an address at which no worker can be."""

from __future__ import annotations

import socket
import threading

import pytest
from click.testing import CliRunner

from streamapp.cli.pause import pause
from streamapp.errors import ConfigError
from streamapp.operations.doctor.worker_reports import ask_workers


@pytest.fixture
def other_server() -> str:
    """The address of a server that speaks another protocol."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listener:
            for _ in range(2):
                talk, _ = listener.accept()
                with talk:
                    talk.recv(1_000)
                    talk.sendall(b"SSH-2.0-OpenSSH\r\n")

    threading.Thread(target=answer, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_an_address_that_is_none() -> None:
    result = CliRunner().invoke(pause, ["not an address"], catch_exceptions=False)
    assert (result.exit_code, "no worker answers at http://not an address" in result.output) == (1, True)


@pytest.mark.parametrize(
    "url", ["localhost:6066?workers=this", "http://localhost:6066/#top", "ftp://localhost"]
)
def test_a_url_that_is_no_address(url: str) -> None:
    """The command sent its request to another path, and the error was a bare 405."""
    result = CliRunner().invoke(pause, [url], catch_exceptions=False)
    assert (result.exit_code, f"{url} is not the address of a worker" in result.output) == (1, True)
    with pytest.raises(ConfigError, match="not the address"):
        ask_workers([url])


def test_a_server_that_is_no_worker(other_server: str) -> None:
    result = CliRunner().invoke(pause, [other_server], catch_exceptions=False)
    assert (result.exit_code, f"no worker answers at {other_server}" in result.output) == (1, True)
    (report,) = ask_workers([other_server])
    assert "BadStatusLine" in str(report.problem)
