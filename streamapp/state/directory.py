"""The folder of an application's local state: its lock, a check against the topology, and a folder for each task."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from streamapp._base.counted import counted
from streamapp._base.names import NO_TOPIC_ID
from streamapp.errors import ConfigError, LockError, ProcessorStateError
from streamapp.state.backend import STATE_FORMAT, StateDamagedError
from streamapp.state.files import file_limit, too_few_files

__all__ = [
    "DiskFullError",
    "StateDirectory",
    "delete_state",
    "known_fingerprint",
    "state_error",
]

_METADATA = "streamapp.json"
_PROCESS_ID = "process-id"
_LOCK = ".lock"
_WIPED = ".wiped-"
_DAMAGE = ("Corruption", "CURRENT is missing", "No such file or directory")
"""Words in RocksDB's errors that mean missing or damaged files."""
_NO_RIGHTS = ("Permission denied", "Operation not permitted", "Read-only file system")
"""Words in RocksDB's errors for files that are whole, and that this process may not open or write."""
_NO_IDS: Mapping[str, str] = {}
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TASK_ID = re.compile(r"\d+_\d+")
_APPLICATION_ID = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]+")


class DiskFullError(ProcessorStateError):
    """The disk that holds the local state has no space left."""


class StateDirectory:
    """The folder ``root/application_id``, locked by this process, with a folder for each task.

    The name of a task's folder is the task id (``0_3``: sub-topology 0, partition 3). The operating system releases the
    lock when the process ends, even after a crash. Raises `LockError` if the folder is locked already.

    >>> import tempfile
    >>> with StateDirectory(tempfile.mkdtemp(), "flights") as directory:
    ...     directory.check_plan("9f3a")
    ...     directory.check_topics({"departures": 4})
    ...     directory.task_path("0_3").name, directory.task_ids()
    ('0_3', ('0_3',))
    """

    def __init__(self, root: str | os.PathLike[str], application_id: str) -> None:
        if not _APPLICATION_ID.fullmatch(application_id):
            raise ConfigError(
                f"application_id may have letters, digits, '.', '_' and '-', got {application_id!r}"
            )
        self.application_id = application_id
        self.path: Path = Path(root) / application_id
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.path / _LOCK)
        except OSError as error:
            raise state_error(self.path, error) from error
        for leftover in self.path.glob(f"{_WIPED}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def check_plan(
        self,
        fingerprint: str,
        topology: Mapping[str, Any] | None = None,
        compare: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        """Checks that the folder belongs to this application and plan, and notes both. Needs no broker.

        Raises `ProcessorStateError` for a folder of another application or plan, and for state of another format.

        ``topology`` is written as JSON beside the state. If the plan differs, ``compare`` gets the topology that wrote
        the state, and returns the differences as text for the error.
        """
        known = self._metadata()
        found = known.get("format", STATE_FORMAT)
        if found != STATE_FORMAT and self.task_ids():
            raise self._refused(f"has format {found}, and this release reads format {STATE_FORMAT}")
        owner = known.get("application_id", self.application_id)
        if owner != self.application_id:
            raise self._refused(f"belongs to application {owner!r}, not to {self.application_id!r}")
        if known.get("fingerprint", fingerprint) != fingerprint:
            before = known.get("topology")
            changes = compare(before) if compare is not None and before is not None else ""
            raise self._refused(
                "was written by a topology whose stores or internal topics were different", changes
            )
        noted: dict[str, Any] = {
            "application_id": self.application_id,
            "format": STATE_FORMAT,
            "fingerprint": fingerprint,
        }
        if topology is not None:
            noted["topology"] = topology
        self._note(known, noted)

    def check_topics(
        self, partition_counts: Mapping[str, int], changelog_ids: Mapping[str, str] = _NO_IDS
    ) -> None:
        """Checks that the state in the folder fits the topics of the cluster, and notes the topics for the next check.

        Raises `ProcessorStateError` for a topic with another partition count. Topics that the folder does not know yet
        are no error, because a pattern subscription may find new topics.

        Also raises the error if a changelog was deleted and created anew while the folder has state of tasks. The
        offsets of the state mean nothing in the new changelog. A new changelog has another id; ``changelog_ids`` has
        Kafka's ids by topic.
        """
        known = self._metadata()
        counts: dict[str, int] = known.get("partition_counts", {})
        for topic, count in partition_counts.items():
            if counts.get(topic, count) != count:
                raise self._refused(
                    f"was written when topic {topic!r} had {counted(counts[topic], 'partition')}, now it has {count}, "
                    "and keys would be looked for in the wrong partition"
                )
        noted: dict[str, str] = known.get("changelog_ids", {}) if self.task_ids() else {}
        ids = {topic: topic_id for topic, topic_id in noted.items() if topic_id != NO_TOPIC_ID}
        for topic, topic_id in changelog_ids.items():
            if ids.get(topic, topic_id) != topic_id:
                raise self._refused(
                    f"was written with a changelog {topic} that was deleted and created anew since "
                    "(`streamapp reset` deletes changelogs)"
                )
        facts = {
            "partition_counts": {**counts, **partition_counts},
            "changelog_ids": {**ids, **changelog_ids},
        }
        self._note(known, facts)

    def _note(self, known: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Writes facts beside the state, where the facts ``known`` are now."""
        wanted = {**known, **facts}
        if wanted != known:
            _replace(self.path / _METADATA, json.dumps(wanted, indent=2, sort_keys=True))

    def task_path(self, task_id: str) -> Path:
        """The folder of a task, which is created if it is missing."""
        path = self._task_path(task_id)
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise state_error(path, error) from error
        return path

    def task_ids(self) -> tuple[str, ...]:
        """The ids of the tasks with a folder, in the order of sub-topology and partition."""
        found = [path.name for path in self.path.iterdir() if _TASK_ID.fullmatch(path.name) and path.is_dir()]
        return tuple(sorted(found, key=lambda task_id: [int(part) for part in task_id.split("_")]))

    def wipe(self, task_id: str) -> None:
        """Deletes the state of a closed task. The task's next start restores the state from the changelogs."""
        path = self._task_path(task_id)
        wiped = self.path / f"{_WIPED}{task_id}"
        try:
            if path.exists():
                # First renamed, so that a process that dies during the deletion leaves no half-deleted task folder.
                shutil.rmtree(wiped, ignore_errors=True)
                path.rename(wiped)
                shutil.rmtree(wiped)
        except OSError as error:
            raise state_error(path, error) from error

    @property
    def process_id_file(self) -> Path:
        """The file with the `process_id`."""
        return self.path / _PROCESS_ID

    def process_id(self) -> str:
        """An id for the process that holds the lock of the folder. A restart with the same folder finds the same id.

        The id is a part of the transactional id. So a worker that restarts after a crash ends its open transaction at
        once, and readers need not wait for the time-out.
        """
        file = self.process_id_file
        try:
            known = file.read_text(errors="replace") if file.exists() else ""
        except OSError as error:
            raise state_error(file, error) from error
        # After a power failure, a file may be empty or full of zeros. Two workers with such an id would end each
        # other's transactions.
        if not _UUID.fullmatch(known):
            known = str(uuid.uuid4())
            _replace(file, known)
        return known

    def close(self) -> None:
        """Releases the lock. A second call does nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> StateDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _task_path(self, task_id: str) -> Path:
        if not _TASK_ID.fullmatch(task_id):
            raise ValueError(f"expected a task id like '0_3' (sub-topology, partition), got {task_id!r}")
        return self.path / task_id

    def _metadata(self) -> dict[str, Any]:
        try:
            known = json.loads((self.path / _METADATA).read_bytes())
        except FileNotFoundError:
            if self.task_ids():
                raise self._refused(
                    f"has state, but no {_METADATA}, which says to which application it belongs"
                ) from None
            return {}
        except ValueError as error:
            raise self._refused(f"has a {_METADATA} that is not JSON ({error})") from error
        except OSError as error:
            raise state_error(self.path, error) from error
        if not isinstance(known, dict):
            raise self._refused(f"has a {_METADATA} that is not a JSON object")
        return known

    def _refused(self, why: str, changes: str = "") -> ProcessorStateError:
        end = f":\n{changes}\n" if changes else ". "
        return ProcessorStateError(
            f"The state folder {self.path} {why}{end}If the changelog topics still fit, delete the folder or set "
            "another state_dir: the state is restored from them. If they do not fit, set another application_id, or "
            "begin anew with `streamapp reset`. `streamapp compat` says what a change of the topology needs."
        )


def delete_state(folder: Path) -> None:
    """Deletes the state of an application on this machine. Raises `StreamsError` if a worker uses the state."""
    with StateDirectory(folder.parent, folder.name):
        shutil.rmtree(folder)


def known_fingerprint(root: str | os.PathLike[str], application_id: str) -> str | None:
    """Returns the fingerprint of the plan (the built topology) that wrote the application's state in ``root``. Returns
    None if no fingerprint can be read.

    The function takes no lock, so you may call the function while a worker uses the state.
    """
    try:
        known = json.loads((Path(root) / application_id / _METADATA).read_bytes())
    except (OSError, ValueError):
        return None
    return known.get("fingerprint") if isinstance(known, dict) else None


def state_error(path: str | os.PathLike[str], error: BaseException) -> ProcessorStateError:
    """The `ProcessorStateError` for an error of the disk or of RocksDB. Its message says what to do."""
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
        return DiskFullError(
            f"No space is left on the disk of {path} ({error}). Free some space, or set state_dir to a "
            "larger disk; the state is then restored from the changelogs."
        )
    if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE) or "Too many open files" in str(error):
        return ProcessorStateError(
            f"The local state in {path} is whole, but its files cannot be opened ({error}). "
            f"{too_few_files(file_limit())}."
        )
    if isinstance(error, OSError) or any(sign in str(error) for sign in _NO_RIGHTS):
        return ProcessorStateError(
            f"The state folder {path} cannot be used ({error}). Check its permissions and its disk, or set "
            "another state_dir."
        )
    kind = StateDamagedError if any(sign in str(error) for sign in _DAMAGE) else ProcessorStateError
    return kind(
        f"The local state in {path} cannot be read or written ({error}). If it is damaged, delete this "
        "folder while the application is stopped; the state is then restored from the changelogs."
    )


def _replace(file: Path, text: str) -> None:
    """Writes a file so that a full disk or a crash leaves the old file, and never half of the new one."""
    draft = file.with_suffix(".tmp")
    try:
        with draft.open("w") as written:
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        draft.replace(file)
    except OSError as error:
        raise state_error(file, error) from error


def _locked(path: Path) -> int:
    """Locks a file, and writes the process id into it for the error of the next process.

    Returns the descriptor that holds the lock.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except BlockingIOError:
        holder = os.pread(descriptor, 20, 0).decode(errors="replace") or "unknown"
        os.close(descriptor)
        raise LockError(
            f"The state folder {path.parent} is in use by process {holder}. Stop that process, or give this one "
            "another folder with --datadir or state_dir (every process of a host needs its own)."
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
