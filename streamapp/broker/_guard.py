"""Run a command that ends together with the process that started it, even if that process is killed.

The starter runs ``python -I _guard.py COMMAND ...`` with a pipe as standard input. This process becomes the command
(same pid), and leaves behind a child that waits for the end of the pipe and then ends the command. A pipe closes in
every case, also when its holder is killed (kill -9), on Linux and macOS.
"""

import os
import signal
import sys
import time

PATIENCE_SECONDS = 5.0


def guard(pid: int) -> None:
    """Wait until standard input ends, then end process ``pid``, the parent of this one."""
    while os.read(0, 4096):
        pass
    deadline = time.monotonic() + PATIENCE_SECONDS
    sent = 0
    # Once the parent is gone its pid may belong to somebody else; this process then has another parent.
    while os.getppid() == pid:
        wanted = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        if wanted != sent:
            os.kill(pid, wanted)
            sent = wanted
        time.sleep(0.05)


if __name__ == "__main__":
    command_pid = os.getpid()
    if os.fork() == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        guard(command_pid)
    else:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execv(sys.argv[1], sys.argv[1:])
