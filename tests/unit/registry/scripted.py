"""An HTTP server with a script: it answers what a test wants a registry to answer, faults among it."""

from __future__ import annotations

import json
import ssl
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Refused", "ScriptedRegistry"]


class Refused(Exception):
    """An answer that is no success: status, error code, message."""


class ScriptedRegistry:
    """Keeps schemas as a registry does. ``fault`` is asked first, with the number of the request; it may raise `Refused`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.subjects: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        self.ids: list[dict[str, Any]] = []
        self.deleted = set[str]()
        """Subjects whose versions are deleted, but not for good: asked for with ``deleted=true``, they are shown."""
        self.guids = True  # as Confluent's registry since 8.0
        self.fault: Callable[[int], None] = lambda number: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                self._answer("GET", None)

            def do_POST(self) -> None:
                self._answer("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, method: str, body: Any) -> None:
                path = self.path.partition("?")[0]
                outer.requests.append((method, self.path, dict(self.headers)))
                try:
                    outer.fault(len(outer.requests))
                    status, answer = 200, outer._answered(method, path, body)
                except Refused as refused:
                    status, answer = (
                        refused.args[0],
                        {"error_code": refused.args[1], "message": refused.args[2]},
                    )
                text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        self._handler = Handler
        self._port = 0
        self.start()

    def start(self) -> None:
        """Listens, at the same port as before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler)
        self._port = self._server.server_port
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._port}"

    def add(self, subject: str, body: dict[str, Any]) -> int:
        body = _canonical(body)
        if body not in self.ids:
            self.ids.append(body)
        schema_id = self.ids.index(body) + 1
        versions = self.subjects.setdefault(subject, [])
        if all(known != schema_id for known, _ in versions):
            versions.append((schema_id, body))
        return schema_id

    def _answered(self, method: str, path: str, body: Any) -> Any:
        body = body and _canonical(body)
        parts = path.strip("/").split("/")
        if method == "POST" and parts[0] == "compatibility":
            return {"is_compatible": True}
        if method == "POST" and parts[0] == "subjects" and parts[-1] == "versions":
            schema_id = self.add(parts[1], body)
            return {"id": schema_id, "guid": self.guid(body)} if self.guids else {"id": schema_id}
        if method == "POST":
            if parts[1] not in self.subjects:
                raise Refused(404, 40401, f"Subject '{parts[1]}' not found.")
            for version, (schema_id, known) in enumerate(self.subjects[parts[1]], 1):
                if known == body:
                    return {
                        "subject": parts[1],
                        "version": version,
                        "id": schema_id,
                        **self._with_guid(known),
                    }
            raise Refused(404, 40403, "Schema not found")
        if parts[:2] == ["schemas", "ids"]:
            if not 0 < int(parts[2]) <= len(self.ids):
                raise Refused(404, 40403, f"Schema {parts[2]} not found")
            return self._with_guid(self.ids[int(parts[2]) - 1])
        if self.guids and parts[:2] == ["schemas", "guids"]:
            for known in self.ids:
                if self.guid(known) == parts[2]:
                    return self._with_guid(known)
            raise Refused(404, 40403, f"Schema {parts[2]} not found")
        if parts == ["subjects"]:
            return list(self.subjects)
        if parts == ["config"]:
            return {"compatibilityLevel": "BACKWARD"}
        if parts[0] == "config":
            raise Refused(
                404, 40408, f"Subject '{parts[1]}' does not have subject-level compatibility configured"
            )
        if parts[0] != "subjects":
            raise Refused(404, 404, "HTTP 404 Not Found")
        hidden = parts[1] in self.deleted and "deleted=true" not in self.requests[-1][1]
        versions = [] if hidden else self.subjects.get(parts[1], [])
        if parts[2:] == ["versions"]:
            if not versions:
                raise Refused(404, 40401, f"Subject '{parts[1]}' not found.")
            return list(range(1, len(versions) + 1))
        number = len(versions) if parts[3] == "latest" else int(parts[3])
        if not 0 < number <= len(versions):
            raise Refused(404, 40402, f"Version {parts[3]} not found.")
        return {
            "subject": parts[1],
            "version": number,
            "id": versions[number - 1][0],
            **self._with_guid(versions[number - 1][1]),
        }

    def guid(self, body: dict[str, Any]) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(body, sort_keys=True)))

    def _with_guid(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "guid": self.guid(body)} if self.guids else body


def _canonical(body: dict[str, Any]) -> dict[str, Any]:
    """JSON in one form, as registries compare it; only what says something."""
    kept = {
        name: value
        for name, value in body.items()
        if name in ("schema", "schemaType", "references") and value
    }
    if kept.get("schemaType", "AVRO") == "AVRO":
        kept.pop("schemaType", None)
    if kept.get("schemaType") != "PROTOBUF":
        with suppress(ValueError):
            kept["schema"] = json.dumps(json.loads(kept["schema"]), separators=(",", ":"), ensure_ascii=False)
    return kept
