"""The process of one server (a broker or a registry): starts it, finds it again from another process, and ends it."""

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
# Python warns if a process object is deleted while the process runs. Detached processes run on, so they are kept here.
_DETACHED: list[subprocess.Popen[bytes]] = []


class BrokerProcess:
    """The process of one server, which runs in ``folder``. The folder has the pid (``<name>.pid``) and the output
    (``<name>.log``).

    The pid file also has the start time of the process. After the server has ended, the system may give the pid to
    another process. This process has another start time, so it is not taken for the server. On Linux, start times count
    from the boot of the machine. After a reboot, another process with the same pid and start time would be taken for
    the server.
    """

    def __init__(self, folder: Path, name: str = "broker") -> None:
        self.log: Path = folder / f"{name}.log"
        self._folder = folder
        self._pid_file = folder / f"{name}.pid"
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self, command: Sequence[str], *, detached: bool) -> None:
        """Start ``command`` in the server's folder; unless ``detached``, the server ends with this Python process."""
        self._close_child()
        guarded = [] if detached else [sys.executable, "-I", str(_GUARD)]
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            # The server has its own session: a Ctrl-C reaches only Python, which then stops the server in order.
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
        try:
            write_atomically(self._pid_file, json.dumps(identity))
        except BaseException:  # without the file, nobody would find the server again
            self._child.kill()
            self._child.wait()
            self._close_child()
            raise

    @property
    def pid(self) -> int | None:
        """The server's pid; None if the server does not run."""
        if self._child is not None and self._child.poll() is not None:
            self._close_child()
        try:
            identity = json.loads(self._pid_file.read_text())
            pid, started = int(identity["pid"]), identity["started"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return pid if started is not None and _start_time(pid) == started else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server if the server runs."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait until the server has ended; False if the server still runs after ``seconds``."""
        deadline = time.monotonic() + seconds
        while self.pid is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        if self._child is not None:
            self._child.wait()  # the child has ended: this call only takes it off the system's list of processes
            self._close_child()
        self._pid_file.unlink(missing_ok=True)
        return True

    def has_logged(self, text: str) -> bool:
        """True if the server has written ``text`` since its start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return text.encode() in log.read()

    def log_tail(self) -> str:
        """Return the last lines, at most 20, that the server has written since its start, indented."""
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
    """Return the start time of process ``pid`` as text to compare; None if no such process is alive."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The command's name, in parentheses, may have blanks; the state is the first field after the name.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        # After a kill, the first thread may have ended while others still hold the ports.
        ended = fields[0] in "ZX" and int(fields[17]) <= 1
        return None if ended else fields[19]
    shown = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True)
    state, _, started = shown.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader finds the whole old text or the whole new text."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
