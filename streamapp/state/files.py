"""The limit of open files of a process, which a worker may reach because RocksDB keeps its files open."""

from __future__ import annotations

import resource
from contextlib import suppress

from streamapp._base.counted import counted

__all__ = [
    "FILES_OF_A_PROCESS",
    "FILES_OF_A_TASK",
    "file_limit",
    "files_needed",
    "raise_file_limit",
    "too_few_files",
]

FILES_OF_A_PROCESS = 128
"""The most files that an ordinary worker needs for connections, logs and the program itself."""
FILES_OF_A_TASK = 32
"""The files of a task with state on disk. A store of many gigabytes may need more."""


def file_limit() -> int:
    """The number of files that this process may have open at a time."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_file_limit() -> None:
    """Raises the limit of open files as far as the operating system allows, as Java does by itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # macOS refuses its own hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def files_needed(tasks: int) -> int:
    """The number of files that a worker may need with ``tasks`` tasks that have state: 128, and 32 for each of these
    tasks.

    >>> files_needed(4)
    256
    """
    return FILES_OF_A_PROCESS + FILES_OF_A_TASK * tasks


def too_few_files(limit: int) -> str:
    """The message about a limit that is too small, which says how to raise it."""
    return (
        f"This process may have {counted(limit, 'file')} open. A worker needs about {FILES_OF_A_PROCESS}, and "
        f"{FILES_OF_A_TASK} for each task with state: 4096 are enough for "
        f"{counted((4096 - FILES_OF_A_PROCESS) // FILES_OF_A_TASK, 'task')}. Raise the limit and start the worker "
        "again: `ulimit -n 4096` in its shell, LimitNOFILE=4096 in its systemd unit, or "
        "--ulimit nofile=4096 of its container"
    )
