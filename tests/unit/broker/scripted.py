"""A broker with a script: it gives the answers that a real broker gives at moments which a test cannot choose."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.metadata import MetadataResponse_v0

__all__ = ["FIND_COORDINATOR", "ScriptedBroker"]

_METADATA, _API_VERSIONS = 3, 18
FIND_COORDINATOR = 10


class ScriptedBroker:
    """Answers each kind of request with one answer of the script after another, and with the last one for good.

    ``script`` has the answers by the number of the request's kind. ``versions`` are the versions of these requests.
    Kinds in ``flexible`` have a header with tags. ``asked`` counts the requests by kind.
    """

    def __init__(
        self,
        script: Mapping[int, Sequence[Any]],
        versions: Mapping[int, int],
        *,
        flexible: Sequence[int] = (),
    ) -> None:
        self.script = {kind: [*answers] for kind, answers in script.items()}
        self.asked = dict.fromkeys(script, 0)
        self._versions = {_METADATA: 0, _API_VERSIONS: 3, **versions}
        self._flexible = flexible
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                while size := self._read(4):
                    request = self._read(int.from_bytes(size))
                    kind, version, number = struct.unpack_from(">hhi", request)
                    tags = b"\0" if kind in outer._flexible else b""
                    body = struct.pack(">i", number) + tags + outer._answer(kind, version)
                    self.request.sendall(struct.pack(">i", len(body)) + body)

            def _read(self, size: int) -> bytes:
                data = b""
                while len(data) < size and (more := self.request.recv(size - len(data))):
                    data += more
                return data

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> ScriptedBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, kind: int, version: int) -> bytes:
        if kind == _API_VERSIONS and version == 0:
            known = [(each, 0 if each == _API_VERSIONS else at, at) for each, at in self._versions.items()]
            return bytes(ApiVersionResponse_v0(0, known).encode())
        if kind == _METADATA:
            host, port = self.address.split(":")
            return bytes(MetadataResponse_v0([(0, host, int(port))], []).encode())
        self.asked[kind] += 1
        answers = self.script[kind]
        return bytes((answers.pop(0) if len(answers) > 1 else answers[0]).encode())
