"""A local schema registry for development: Apicurio Registry with Confluent's REST interface, without Docker."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from types import TracebackType
from typing import Any

from streamapp.broker.broker_process import BrokerProcess, write_atomically
from streamapp.broker.distribution import REGISTRY_VERSION, find_java, registry_jars
from streamapp.broker.ports import check_port, free_port
from streamapp.broker.properties import HOST
from streamapp.errors import BrokerError, SchemaRegistryError
from streamapp.registry.registry_settings import RegistrySettings
from streamapp.registry.rest import RestClient

__all__ = ["LocalRegistry", "RegistryStatus"]

_MARKER = "streamapp-registry.json"
_LOCK = ".lock"
_STOP_SECONDS = 15.0
_PATH = "/apis/ccompat/v7"
# The subjects are in a file of the process's working folder. WRITE_DELAY=0: a change is on disk before its answer.
_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-Xmx256m",
    "-DREGISTRY_DATASOURCE_URL=jdbc:h2:file:./subjects;WRITE_DELAY=0",
    "-DENABLE_CCOMPAT_CANONICAL_HASH_MODE=true",  # schemas that differ in white space are equal
    "-Dquarkus.datasource.jdbc.initial-size=2",
    "-Dquarkus.datasource.jdbc.min-size=2",
    f"-Dquarkus.http.host={HOST}",
)


@dataclass(frozen=True)
class RegistryStatus:
    """The state of a registry. ``url`` is None before the first start; ``pid`` is None unless the registry runs."""

    data_dir: Path
    url: str | None
    pid: int | None


class LocalRegistry:
    """A schema registry that keeps its subjects in ``data_dir``, also after a crash.

    With ``port=0``, the registry has the same port as at its last start, or at the first start a free port. A new
    registry has the compatibility level ``BACKWARD``, like Confluent's. ``start_timeout`` is in seconds.

        with LocalRegistry("data/registry", port=0) as registry:
            print(registry.url)

    A failed start raises `BrokerError`.
    """

    def __init__(
        self, data_dir: str | Path = "data/registry", port: int = 8081, *, start_timeout: float = 180.0
    ) -> None:
        if not 0 <= port <= 65_535:
            raise BrokerError(f"Port {port} is out of range: use 1 to 65535, or 0 for a free one.")
        self.data_dir: Path = Path(data_dir).absolute()
        self._wanted_port = port
        self._start_timeout = start_timeout
        self._process = BrokerProcess(self.data_dir, "registry")

    def __enter__(self) -> LocalRegistry:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The address for ``STREAMAPP_SCHEMA_REGISTRY_URL``."""
        port = self._port()
        if port is None:
            raise BrokerError(
                f"There is no registry in {self.data_dir}: start it with `streamapp registry start`."
            )
        return f"http://{HOST}:{port}{_PATH}"

    def status(self) -> RegistryStatus:
        """The state of the registry, also if another process started the registry."""
        return RegistryStatus(self.data_dir, self.url if self._port() else None, self._process.pid)

    def check(self) -> None:
        """Raise `BrokerError` if the registry runs already, its port is in use, or its folder cannot be used."""
        with self._lock():
            self._checked_port()

    def start(self, *, detached: bool = False) -> None:
        """Start the registry, and wait until it answers.

        The registry ends with this Python process, even if the process is killed. With ``detached``, the registry
        runs until `stop`.
        """
        self.check()  # a mistake is told before the download, which may take minutes without the lock
        java = find_java("The schema registry")
        jars = registry_jars(java)
        with self._lock():
            port = self._checked_port()
            before = self._marker()
            self._write_marker(port, ready=before.get("ready", False))
            runner = jars / f"apicurio-registry-app-{REGISTRY_VERSION}-runner.jar"
            command = [java, *_OPTIONS, f"-Dquarkus.http.port={port}", "-jar", str(runner)]
            try:
                self._process.start(command, detached=detached)
                client = self._await_ready()
                if not before.get("ready", False):
                    client.ask("PUT", "/config", {"compatibility": "BACKWARD"})
                    self._write_marker(port, ready=True)
            except BaseException:
                self._process.signal(SIGKILL)
                self._process.wait(_STOP_SECONDS)
                raise

    def _checked_port(self) -> int:
        if self._process.pid is not None:
            raise BrokerError(
                f"A registry in {self.data_dir} runs already at {self.url}: use this registry, or stop it first."
            )
        port = int(self._wanted_port or self._marker().get("port") or free_port())
        check_port(port, "registry", variable="STREAMAPP_SCHEMA_REGISTRY_URL")
        return port

    def stop(self) -> None:
        """Stop the registry, also if another process started it. A registry that does not stop in time is killed."""
        self._process.signal(SIGTERM)
        if not self._process.wait(_STOP_SECONDS):
            self.kill()

    def kill(self) -> None:
        """Kill the registry (SIGKILL)."""
        self._process.signal(SIGKILL)
        self._process.wait(_STOP_SECONDS)

    def _await_ready(self) -> RestClient:
        client = RestClient(RegistrySettings(url=self.url))
        deadline = time.monotonic() + self._start_timeout
        while True:
            try:
                client.ask("GET", "/subjects", patient=False)
                return client
            except SchemaRegistryError:
                pass
            if self._process.pid is None:
                problem = "ended while it started"
            elif time.monotonic() > deadline:
                problem = f"did not get ready within {self._start_timeout:g} s"
            else:
                time.sleep(0.2)
                continue
            raise BrokerError(
                f"The registry at {self.url} {problem}. "
                f"The end of its log, {self._process.log}:\n{self._process.log_tail()}"
            )

    def _port(self) -> int | None:
        port: int | None = self._marker().get("port")
        return port

    def _marker(self) -> dict[str, Any]:
        path = self.data_dir / _MARKER
        try:
            marker = json.loads(path.read_text(encoding="utf-8"))
            return {"port": int(marker["port"]), "ready": bool(marker["ready"])}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BrokerError(
                f"{path} cannot be read ({error!r}): delete this file, or use another data folder."
            ) from error

    def _write_marker(self, port: int, *, ready: bool) -> None:
        """Writes the marker file with the port. ``ready`` notes that the compatibility level is set, so a later start
        does not set the level again."""
        write_atomically(self.data_dir / _MARKER, json.dumps({"port": port, "ready": ready}) + "\n")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Locks the folder while this process starts the registry."""
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            file = (self.data_dir / _LOCK).open("w")
        except OSError as error:
            raise BrokerError(
                f"{self.data_dir} cannot be used as a data folder: {error}. Choose another folder."
            ) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BrokerError(
                    f"Another process is starting the registry in {self.data_dir}: wait, or end that process."
                ) from None
            yield
