"""Workers and commands as forks of one process that has imported Faust and streamapp. Imports take most of their CPU.

``python -m tests.stem FD`` is this process, the stem. The stem has no other thread, so a fork of it is as good as a new
process. A fork runs the script of an installed command, as a shell would do. The fork server of multiprocessing would
not do: its processes end without the functions that are registered with atexit.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from streamapp._base import failpoints

__all__ = ["Fork", "fork"]

_ROOT = Path(__file__).parent.parent
_MOST_BYTES = 200_000
_IMPORTED = (
    "faust.cli.faust",
    "faust.web.drivers.aiohttp",
    "streamapp.app",
    "streamapp.cli",
    "streamapp.cli.acls",
    "streamapp.cli.dlq",
    "streamapp.cli.group_offsets",
    "streamapp.cli.schema",
    "streamapp.cli.trial",
    "streamapp.web.metrics",
    "streamapp.web.server",
)


class Fork:
    """A fork of the stem, with the methods of `subprocess.Popen` that tests need. The stem is its parent."""

    def __init__(self, status: IO[bytes]) -> None:
        self._status = status
        self.pid = int(status.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._read(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode


def fork(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    *,
    stdin: IO[Any],
    stdout: IO[Any],
    stderr: IO[Any],
) -> Fork:
    """Runs a script of Python, or ``-m`` and a module, with its arguments. ``env`` is the whole environment."""
    status, told = os.pipe()
    request = json.dumps({"command": command, "env": dict(env), "cwd": str(cwd)}).encode()
    assert len(request) <= _MOST_BYTES
    socket.send_fds(_stem(), [request], [told, *(file.fileno() for file in (stdin, stdout, stderr))])
    os.close(told)
    return Fork(os.fdopen(status, "rb", buffering=0))


@cache
def _stem() -> socket.socket:
    """The connection to the stem, which ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        # Its standard streams are no terminal, and neither are those of the forks.
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return ours


def _serve(requests: socket.socket) -> list[str]:
    """Forks for each request. Returns the command of the request, but only in the fork."""
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end the stem
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, ended], [], [])
        if ended in ready:
            os.read(ended, 1_000)
            _tell_ends(statuses)
        if requests not in ready:
            continue
        request, fds, _, _ = socket.recv_fds(requests, _MOST_BYTES, 4)
        if not request:
            os._exit(0)
        told, *streams = fds
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number, fd in enumerate(streams):
                os.dup2(fd, number)
            for fd in (*fds, *statuses.values(), requests.detach(), ended, wake):
                os.close(fd)
            return _become(**json.loads(request))
        os.write(told, b"%d\n" % pid)
        statuses[pid] = told
        for fd in streams:
            os.close(fd)


def _tell_ends(statuses: dict[int, int]) -> None:
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        told = statuses.pop(pid)
        with suppress(BrokenPipeError):  # nobody waits for it
            os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(told)


def _become(command: list[str], env: dict[str, str], cwd: str) -> list[str]:
    """Does what Python and streamapp have done with the environment before the fork."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.path[1:1] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    failpoints.arm(env.get("STREAMAPP_FAILPOINT", ""))
    return command


def _look_around() -> None:
    """Does what each application of Faust would do: finds the files of all modules, and the plug-ins of Faust."""
    inspect.getframeinfo(sys._getframe())
    tuple(import_module("faust.fixups").FIXUPS.iterate())
    import_module("faust.web.cache.backends").by_url("memory://")


def _main(fd: int) -> None:
    for name in _IMPORTED:
        import_module(name)
    _look_around()
    assert len(os.listdir("/proc/self/task")) == 1
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the memory of all these objects
    sys.argv[:] = _serve(socket.socket(fileno=fd))


if __name__ == "__main__":
    # Faust reads the command line while Python imports it.
    argument = sys.argv.pop()
    _main(int(argument))
    if sys.argv[0] == "-m":
        sys.argv.pop(0)
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
