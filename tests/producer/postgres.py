"""A real PostgreSQL that tests may kill."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from streamapp.broker import ports

__all__ = ["PostgreSQL"]

_USER = "postgres"
_SECONDS = 60.0


class PostgreSQL:
    """One server on a port of its own. It does not run as root, so root runs the server as the user ``postgres``."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._as: dict[str, str] = {}
        if os.getuid() == 0:
            shutil.chown(self._folder, _USER)
            self._as = {"user": _USER}
        self._port = ports.free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._call(
            _program("initdb"), "-D", str(self._data), "-U", "app", "-A", "trust", "--no-sync", "-E", "UTF8"
        )

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self._port} user=app dbname=postgres"

    def start(self) -> None:
        command = [
            _program("postgres"),
            "-D",
            str(self._data),
            "-p",
            str(self._port),
            "-k",
            str(self._folder),
        ]
        deadline = time.monotonic() + _SECONDS
        while True:
            if self._process is None or self._process.poll() is not None:
                # After a kill the server refuses to start until the last of its children is gone.
                with (self._folder / "log").open("ab") as log:
                    self._process = subprocess.Popen(
                        command,
                        stdout=log,
                        stderr=log,
                        cwd="/",
                        **self._as,  # type: ignore[call-overload]
                    )
            try:
                psycopg.connect(self.conninfo, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self._folder / "log").read_text()
                time.sleep(0.2)

    def kill(self) -> None:
        """Ends the server at once (SIGKILL)."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Stops all processes of the server (SIGSTOP). The kernel still acknowledges the packets of clients."""
        assert self._process is not None
        self._signal(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._signal(self._process.pid, signal.SIGCONT)

    def _signal(self, pid: int, number: signal.Signals) -> None:
        os.kill(pid, number)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            self._signal(int(child), number)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # a fast shutdown
            self._process.wait(_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _call(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", **self._as)  # type: ignore[call-overload]
        assert done.returncode == 0, (getpass.getuser(), done.stdout, done.stderr)


def _program(name: str) -> str:
    found = [*map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), shutil.which(name)]
    assert found[0], f"{name} of PostgreSQL is not here: run scripts/test-packages"
    return found[0]
