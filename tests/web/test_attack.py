"""An attack on a web server with users, from one machine: no internal error, bounded memory, and the probe is answered throughout.

A run by hand may take longer: ``ROUNDS=100 pytest tests/web/test_attack.py``.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import os
import random
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path

import pytest

from streamapp.web.forwarding import HEADER, Signatures
from streamapp.web.table_request import Position
from streamapp.web.users import Identity
from tests.processes import free_port, until

from .test_authentication import ENVIRON, SECRET

ROUNDS = int(os.environ.get("ROUNDS", "1"))
ROOM_MIB = 250
"""The server may take so much more than at its start: 64 MiB of answers that nobody takes, a comparison of a password, buffers."""
MOST_POURED = 200 * 2**20
ROBOT = b"Authorization: Bearer sat_planted\r\n"
WATCH = b"Authorization: Bearer sat_watch\r\n"

Attack = Callable[["Target"], None]


class Target:
    """The server's process, what it has answered, and how much memory it has taken."""

    def __init__(self, folder: Path) -> None:
        self.port, self.log = free_port(), folder / "log"
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "tests.web.attacked", str(self.port)]
            self.process = subprocess.Popen(
                command, env={**os.environ, **ENVIRON}, stdout=log, stderr=subprocess.STDOUT
            )
        until(lambda: b"ready" in self.log.read_bytes(), 120, self.log.read_text)
        self.get("/tables/large/?limit=1000")
        self.statuses: Counter[int] = Counter()
        self.at_first = self.memory()

    def memory(self) -> int:
        """In MiB."""
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1]) >> 10

    def connect(self, data: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        with suppress(OSError):
            connection.sendall(data)
        return connection

    def send(self, data: bytes, method: str = "GET") -> int:
        """The status of the answer; 0: closed without one."""
        with self.connect(data) as connection:
            try:
                response = HTTPResponse(connection, method=method)
                response.begin()
                response.read()
                status = response.status
            except (OSError, HTTPException):
                status = 0
        self.statuses[status] += 1
        return status

    def get(self, path: str) -> int:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Authorization": "Bearer sat_watch"})
        with connection.getresponse() as response:
            response.read()
            return response.status

    def probe(self) -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/health/ready")
        with connection.getresponse() as response:
            assert (response.status, b"true" in response.read()) == (200, True)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    target = Target(tmp_path_factory.mktemp("attacked"))
    yield target
    target.process.kill()
    target.process.wait()


def head(method: str, path: str, *lines: bytes) -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\n".encode("latin-1", "replace")
        + b"".join([b"Host: localhost\r\n", *lines]) + b"Connection: close\r\n\r\n"
    )  # fmt: skip


# Connections are left open on purpose: each attack keeps what it has until its end.


def half_heads(target: Target) -> None:
    held = [target.connect(b"GET / HTTP/1.1\r\nHost: local"[: n % 28]) for n in range(600)]
    target.probe()
    for each in held:
        with suppress(OSError):
            each.sendall(b"X: y\r\n")
    target.probe()
    for each in held:
        each.close()


def bodies_that_trickle(target: Target) -> None:
    start = b"POST /mine/ HTTP/1.1\r\nHost: localhost\r\n" + ROBOT
    held = [target.connect(start + b"Content-Length: 900000\r\n\r\nx") for _ in range(300)]
    held += [target.connect(start + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n") for _ in range(100)]
    target.probe()
    for each in held:
        each.close()


def huge_bodies(target: Target) -> None:
    for login in (ROBOT, WATCH, b""):
        for path in ("/mine/", "/pause", "/dlq/0-1", "/status"):
            sized, chunked = b"Content-Length: 4000000000\r\n", b"Transfer-Encoding: chunked\r\n"
            for line, data in ((sized, b"x" * 100_000), (chunked, b"186a0\r\n" + b"x" * 100_000 + b"\r\n")):
                with suppress(OSError), target.connect(head("POST", path, login, line)) as connection:
                    for _ in range(200):
                        connection.sendall(data)
            bomb = gzip.compress(b"\0" * 50_000_000)
            lines = (login, b"Content-Encoding: gzip\r\n", b"Content-Length: %d\r\n" % len(bomb))
            assert target.send(head("POST", path, *lines) + bomb, "POST") != 200 or path == "/pause"
        target.probe()


def huge_heads(target: Target) -> None:
    for size in (8_000, 9_000, 100_000, 3_000_000):
        target.send(head("GET", "/" + "a" * size, WATCH))
        target.send(head("GET", "/status", b"X: " + b"a" * size + b"\r\n", WATCH))
        target.send(head("GET", "/status", b"Authorization: Basic " + b"A" * size + b"\r\n"))
        target.send(head("GET", "/status?" + "&".join(f"a{n}=" for n in range(size // 10)), WATCH))
    target.send(head("GET", "/status", b"".join(b"X-%d: y\r\n" % n for n in range(50_000)), WATCH))


def answers_that_nobody_takes(target: Target) -> None:
    held = []
    for _ in range(120):
        held.append(target.connect(head("GET", "/tables/large/?limit=1000", WATCH)))
        if len(held) % 20 == 0:
            target.probe()
            assert target.memory() < target.at_first + ROOM_MIB
    for each in held:
        each.close()


def pour(target: Target, first: bytes, data: bytes) -> None:
    """Sends data behind a request whose answer nobody takes, until the server takes no more of them, or closes."""
    with target.connect(first) as connection:
        connection.settimeout(1)
        with suppress(OSError):  # also the end of the time: the server reads no further
            for _ in range(MOST_POURED // len(data)):
                connection.sendall(data)
                assert target.memory() < target.at_first + ROOM_MIB
    target.probe()


def many_requests_on_a_connection(target: Target) -> None:
    request = b"GET /status HTTP/1.1\r\nHost: localhost\r\n" + WATCH + b"\r\n"
    slow = b"GET /tables/large/?limit=1000 HTTP/1.1\r\nHost: localhost\r\n" + WATCH
    pour(target, request, request * 500)
    pour(target, slow + b"\r\n", request * 500)


def protocols_that_the_server_does_not_speak(target: Target) -> None:
    """Bytes behind a request for another protocol, which no parser looks at until the request is answered."""
    slow = b"GET /tables/large/?limit=1000 HTTP/1.1\r\nHost: localhost\r\n" + WATCH
    pour(target, slow + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b"a" * 100_000)
    pour(target, slow + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n", b"a" * 100_000)
    pour(target, b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n" + WATCH + b"\r\n", b"a" * 100_000)


def guesses(target: Target) -> None:
    """More than one core could compare; what is not compared is refused at once."""

    def guess(start: int) -> None:
        for n in range(start, start + 20):
            login = base64.b64encode(f"ada:guess-{n}".encode())
            target.send(head("GET", "/status", b"Authorization: Basic " + login + b"\r\n"))

    threads = [threading.Thread(target=guess, args=(n,)) for n in range(0, 1_000, 50)]
    for each in threads:
        each.start()
    target.probe()
    for each in threads:
        each.join()
    assert target.statuses[429] > 100
    assert target.get("/status") == 200  # a right login is not locked out


def forged(target: Target) -> None:
    """Nobody is a worker, whatever the header says; all of it would change something."""
    others = Signatures(lambda: b"x" * 40)
    own = f"http://127.0.0.1:{target.port}"
    mine = Signatures(lambda: SECRET.encode()).sign(
        Identity("ada", "operate"), "POST", "http://b:6066", "/pause"
    )
    headers = ["1", "true", "v1:0:0:operate:0:ada", mine, "v1:" + ":" * 2_000, "²", ""]
    headers += [others.sign(Identity("ada", "operate"), "POST", own, "/pause")]
    for each, login in itertools.product(headers, (b"", WATCH, ROBOT)):
        line = f"{HEADER}: {each}\r\n".encode("latin-1", "replace")
        assert target.send(head("POST", "/pause", line, login), "POST") in (400, 401)


def strangers(target: Target) -> None:
    """Hosts, origins, methods, cursors and parameters of all kinds; with a login, and without."""
    hosts = ["evil.example", "localhost.evil", "[::1", "²", "", "a" * 5_000]
    for host, login in itertools.product(hosts, (b"", ROBOT)):
        data = head("POST", "/pause", login).replace(b"localhost", host.encode("latin-1", "replace"), 1)
        assert target.send(data, "POST") in (400, 401, 403)
    for origin in ("null", "http://evil.example", "http://[::1", "²", "", "http://localhost@evil"):
        line = f"Origin: {origin}\r\n".encode("latin-1", "replace")
        assert target.send(head("POST", "/pause", line, ROBOT), "POST") in (400, 403)
    numbers = [0, -1, 2**31, 2**63, 2**70, -(2**70), 10**300]
    pick = random.Random(7)
    cursors = [
        Position(pick.choice(numbers), secrets.token_bytes(9), *pick.choices(numbers, k=3)).cursor()
        for _ in range(40)
    ]
    cursors += ["[" * 3_000, base64.urlsafe_b64encode(b"[" * 3_000).decode(), "%00", "a" * 5_000]
    for cursor in cursors:
        assert target.send(head("GET", f"/tables/large/?limit=1&cursor={cursor}", WATCH)) in (200, 400)
    for path in (
        "/static/../../etc/passwd",
        "/static/%2e%2e/%2e%2e/x",
        "//evil.example/",
        "/%00",
        "http://evil.example/",
        "*",
    ):
        for method in ("GET", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"):
            for login in (b"", WATCH):
                assert target.send(head(method, path, login), method) in (
                    0,
                    200,
                    301,
                    307,
                    400,
                    401,
                    403,
                    404,
                    405,
                )


def noise(target: Target) -> None:
    for n in range(200):
        start = (
            b"",
            b"GET ",
            b"GET / HTTP/1.1\r\n",
            b"POST /pause HTTP/1.1\r\nHost: localhost\r\n",
            b"PRI * HTTP/2.0\r\n\r\n",
        )[n % 5]
        target.send(start + secrets.token_bytes(1 + n) + b"\r\n\r\n")


ATTACKS: list[Attack] = [
    half_heads, bodies_that_trickle, huge_bodies, huge_heads, answers_that_nobody_takes, many_requests_on_a_connection,
    protocols_that_the_server_does_not_speak, forged,
    strangers, noise, guesses,
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: str(attack.__name__))
def test_the_server_stands(target: Target, attack: Attack) -> None:
    for _ in range(ROUNDS):
        attack(target)
        target.probe()
    assert not [status for status in target.statuses if status >= 500 and status != 503], target.statuses
    until(
        lambda: target.memory() < target.at_first + ROOM_MIB,
        60,
        lambda: f"{target.memory()} of {target.at_first}",
    )
    log = target.log.read_text(errors="replace")
    assert "Traceback" not in log, log[-3_000:]
    assert len(log) < 2_000_000


def test_nothing_has_changed_and_no_login_was_lost(target: Target) -> None:
    """After all of it a right login reads, the table is whole, and the server has room for new connections."""
    deadline = time.monotonic() + 60
    while (status := target.get("/tables/large/?limit=1")) != 200:
        assert time.monotonic() < deadline, status
