"""One server, a broker or a registry, as a process of the operating system: start it, find it again, end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["BrokerProcess", "write_atomically"]

_GUARD = Path(__file__).with_name("_guard.py")
_TAIL_LINES = 20
# Python warns when a process is forgotten that still runs; a detached one is meant to.
_DETACHED: list[subprocess.Popen[bytes]] = []


class BrokerProcess:
    """The process of one server, known by ``<name>.pid`` in its folder; its output goes to ``<name>.log``.

    The file holds the pid and the time at which that process started, so a pid that the system has given
    to somebody else since is never taken for the broker.
    """

    def __init__(self, folder: Path, name: str = "broker") -> None:
        self.log: Path = folder / f"{name}.log"
        self._folder = folder
        self._pid_file = folder / f"{name}.pid"
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self, command: Sequence[str], *, detached: bool) -> None:
        """Start ``command`` in the broker's folder; unless detached it ends with this Python process."""
        self._close_child()
        guarded = [] if detached else [sys.executable, "-I", str(_GUARD)]
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            # In a session of its own a Ctrl-C reaches only Python, which then stops the broker in order.
            self._child = subprocess.Popen(
                [*guarded, *command],
                cwd=self._folder,
                stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if detached:
            _DETACHED.append(self._child)
        identity = {"pid": self._child.pid, "started": _start_time(self._child.pid)}
        write_atomically(self._pid_file, json.dumps(identity))

    @property
    def pid(self) -> int | None:
        """The broker's pid while it runs, else None."""
        if self._child is not None and self._child.poll() is not None:
            self._close_child()
        try:
            identity = json.loads(self._pid_file.read_text())
            pid, started = int(identity["pid"]), identity["started"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return pid if started is not None and _start_time(pid) == started else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the broker if it runs."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait until the broker has ended; False if it still runs after ``seconds``."""
        deadline = time.monotonic() + seconds
        while self.pid is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        if self._child is not None:
            self._child.wait()  # it ended: this only takes it off the system's list of processes
            self._close_child()
        self._pid_file.unlink(missing_ok=True)
        return True

    def log_tail(self) -> str:
        """Return the last lines that the broker wrote since it was started, indented."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self._log_start, self.log.stat().st_size - 16_384))
                lines = log.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return "  (no log)"
        return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])

    def _close_child(self) -> None:
        if self._child is not None:
            if self._child.stdin is not None:
                self._child.stdin.close()
            self._child = None


def _start_time(pid: int) -> str | None:
    """Return when process ``pid`` started, as text to compare; None if there is no such live process."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The command's name, in parentheses, may hold blanks; state is the first field after it.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    shown = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True)
    state, _, started = shown.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old text or the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
