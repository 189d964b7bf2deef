"""The proxy between a client and a server with frames as those of Kafka."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator

import pytest

from ..processes import free_port, until
from .proxy import Proxy


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while head := self.request.recv(4, socket.MSG_WAITALL):
            frame = self.request.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
            answer = frame[4:8] + b"answer"
            self.request.sendall(len(answer).to_bytes(4, "big") + answer)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        proxy = Proxy(free_port(), server.server_address[1])
        yield proxy
        proxy.close()
        server.shutdown()


class Client:
    def __init__(self, proxy: Proxy) -> None:
        self.socket = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)

    def ask(self, kind: int, number: int) -> bytes:
        """The answer to a request. Empty: the connection has ended."""
        self.send(kind, number)
        return self.answer()

    def send(self, kind: int, number: int) -> None:
        frame = struct.pack(">hhi", kind, 0, number)
        self.socket.sendall(len(frame).to_bytes(4, "big") + frame)

    def answer(self) -> bytes:
        try:
            head = self.socket.recv(4, socket.MSG_WAITALL)
            return self.socket.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL) if head else b""
        except ConnectionError:
            return b""


def right(number: int) -> bytes:
    return number.to_bytes(4, "big") + b"answer"


def test_it_passes_on(proxy: Proxy) -> None:
    client = Client(proxy)
    assert [client.ask(3, n) for n in range(3)] == [right(n) for n in range(3)]


def test_a_cut_ends_connections_until_it_is_healed(proxy: Proxy) -> None:
    client = Client(proxy)
    assert client.ask(3, 1) == right(1)
    proxy.cut()
    assert client.answer() == b""
    assert Client(proxy).answer() == b""
    proxy.heal()
    assert Client(proxy).ask(3, 2) == right(2)


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_hole_keeps_connections_and_lets_nothing_through(proxy: Proxy, way: str) -> None:
    client = Client(proxy)
    assert client.ask(3, 1) == right(1)
    proxy.hole("up" if way == "up" else "down")
    client.send(3, 2)
    client.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.answer()
    proxy.heal()
    client.socket.settimeout(5)
    assert client.answer() == right(2)


@pytest.mark.parametrize("way", ["up", "down"])
def test_it_loses_one_request_of_a_kind_or_its_response(proxy: Proxy, way: str) -> None:
    client = Client(proxy)
    assert client.ask(3, 1) == right(1)
    proxy.lose([8], "up" if way == "up" else "down")
    assert client.ask(3, 2) == right(2)
    assert client.ask(8, 3) == b""
    until(lambda: proxy.lost == 1, 5, lambda: proxy.lost)
    assert Client(proxy).ask(8, 4) == right(4)
