"""A worker of the counting application that is asked over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from ..processes import free_port, until
from .conftest import Cluster

__all__ = ["Member"]


class Member:
    """Started with any settings of `StreamsConfig`."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        port: int | None = None,
        app: str = "elastic_app",
        env: dict[str, str] | None = None,
        **config: Any,
    ) -> None:
        self.port = port or free_port()
        self.worker = cluster.start(
            name, app=app, WEB_PORT=str(self.port), CONFIG=json.dumps(config), **(env or {})
        )

    def ask(self, path: str, method: str = "GET") -> tuple[int, Any]:
        """Status and JSON; (0, reason) when nothing answers."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError as error:
            return 0, str(error)

    def status(self) -> Any:
        status, body = self.ask("/status")
        return body if status == 200 else {}

    def until_it_has(self, tasks: int, standbys: int, timeout: float = 90.0) -> None:
        """Until it runs so many tasks and its copies of so many others have everything."""

        def has() -> bool:
            status = self.status()
            return (
                status.get("state") == "running"
                and len(status["tasks"]) == tasks
                and len(status["standbys"]) == standbys
                and all(each["lag"] == 0 and not each["warmup"] for each in status["standbys"])
            )

        until(has, timeout, lambda: f"{self.status()}\n{self.worker.text()[-5_000:]}")
