"""When the process of a local server counts as ended."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from streamapp.broker import broker_process

from ...processes import until

_EXIT_OF_A_THREAD = {"x86_64": 60, "aarch64": 93}
"""Linux's number of the call that ends one thread only, by machine."""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or platform.machine() not in _EXIT_OF_A_THREAD,
    reason="ends a thread with a call of Linux",
)
def test_a_server_runs_until_its_last_thread_has_ended() -> None:
    """A killed server whose first thread has ended may still hold its ports."""
    code = (
        "import ctypes, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        f"ctypes.CDLL(None).syscall({_EXIT_OF_A_THREAD[platform.machine()]}, 0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:
        stat = Path(f"/proc/{child.pid}/stat")
        try:
            until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", 10, stat.read_text)
            assert broker_process._start_time(child.pid) is not None
        finally:
            child.kill()
        child.wait()
        assert broker_process._start_time(child.pid) is None
