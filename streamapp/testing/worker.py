"""`WorkerProcess`: a worker as a child process, for demonstrations and for tests that kill the worker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
from collections.abc import Mapping
from pathlib import Path
from signal import SIGKILL, SIGTERM
from types import TracebackType
from typing import Any

from streamapp._base.worker_client import open_worker
from streamapp.broker import _guard
from streamapp.errors import StreamsError

__all__ = ["WorkerProcess"]

_TAIL_LINES = 15


class WorkerProcess:
    """One worker of ``application`` (a module or object, as ``faust -A`` takes it) as a child process.

    The worker ends soon after this Python process ends, also if this process is killed. The worker gets the environment
    of this process, with the variables ``environ`` in addition. The worker's output goes to the file ``log``. The
    worker's web server listens on ``web_port``. ``datadir`` is the folder of the worker's state (default: the
    application's setting).

        with WorkerProcess("agents", web_port=6066, log=Path("worker.log")) as worker:
            worker.wait_until_ready()
            print(worker.get("/tables/"))

    At the end of the block the worker commits and stops. Raises `StreamsError` if the web port is in use.
    """

    def __init__(
        self,
        application: str,
        *,
        web_port: int,
        log: Path,
        datadir: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.url: str = f"http://localhost:{web_port}"
        self.log = log
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", web_port)) == 0:
                raise StreamsError(
                    f"Port {web_port}, where the worker would serve its views, is in use. "
                    "Stop what uses it, or choose another port."
                )
        log.parent.mkdir(parents=True, exist_ok=True)
        folder = [] if datadir is None else ["--datadir", str(datadir)]
        faust = [sys.executable, "-m", "faust", "--quiet", *folder, "-A", application]
        worker = [*faust, "worker", "--web-port", str(web_port)]
        with log.open("wb") as output:
            # The worker gets a session of its own. A Ctrl-C then reaches only this process, which stops the worker in
            # order.
            self._process = subprocess.Popen(
                [sys.executable, "-I", _guard.__file__, *worker],
                env={**os.environ, **(environ or {})},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """True if the process of the worker has not ended."""
        return self._process.poll() is None

    def wait_until_ready(self, timeout: float = 120.0) -> None:
        """Waits until the worker has its partitions and has restored them, so that every table can be read.

        Raises `StreamsError` if the worker ends meanwhile, or is not ready after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.check()
            try:
                self.get("/health/ready", timeout=2.0)
            except (OSError, StreamsError) as error:
                if time.monotonic() > deadline:
                    raise StreamsError(
                        f"the worker is not ready after {timeout:g} s ({error}); its log is {self.log}"
                    ) from error
                time.sleep(0.2)
            else:
                return

    def check(self) -> None:
        """Raises `StreamsError` if the worker has ended. The message has the last errors of the log, or its end."""
        code = self._process.poll()
        if code is not None:
            lines = self.log.read_text(errors="replace").splitlines()
            told = [line for line in lines if "[ERROR]" in line or "[CRITICAL]" in line] or lines
            tail = "\n".join(f"  {line}" for line in told[-_TAIL_LINES:])
            raise StreamsError(f"the worker has ended (exit code {code}); its log is {self.log}:\n{tail}")

    def get(self, path: str, *, timeout: float = 10.0) -> Any:
        """The JSON that the worker answers to ``path``, for example ``/tables/``.

        Raises `StreamsError` if the worker refuses the request, and `OSError` if the worker cannot be reached.
        """
        try:
            with open_worker(self.url + path, seconds=timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise StreamsError(f"{path}: {error.code} {error.read().decode(errors='replace')}") from error

    def stop(self, timeout: float = 40.0) -> int:
        """Asks the worker to commit and end, and returns its exit code. After ``timeout`` seconds the worker is
        killed."""
        if self.running:
            self._process.send_signal(SIGTERM)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._reap()

    def kill(self) -> None:
        """Ends the worker at once, as a power cut would (SIGKILL)."""
        self._process.send_signal(SIGKILL)
        self._reap()

    def _reap(self) -> int:
        code = self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return code
