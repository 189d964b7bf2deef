from __future__ import annotations

import errno
import json
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streamapp import (
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    compare_topologies,
)
from streamapp._base.names import NO_TOPIC_ID
from streamapp.errors import ConfigError, LockError, ProcessorStateError
from streamapp.state.backend import STATE_FORMAT
from streamapp.state.directory import DiskFullError, StateDirectory
from streamapp.topology.plan import Plan
from streamapp.topology.snapshot import snapshot

COUNTS = {"departures": 4}


def opened(root: Path, application_id: str = "flights") -> StateDirectory:
    return StateDirectory(root, application_id)


def check(
    directory: StateDirectory,
    partition_counts: Mapping[str, int],
    changelog_ids: Mapping[str, str] | None = None,
) -> None:
    """The checks of a start of the worker."""
    directory.check_plan("f1")
    directory.check_topics(partition_counts, changelog_ids or {})


def prepared(root: Path) -> None:
    with opened(root) as directory:
        check(directory, COUNTS)
        directory.task_path("0_3")


def test_layout_and_task_ids(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        for task_id in ("1_0", "0_10", "0_9"):
            directory.task_path(task_id)
        (directory.path / "notes").mkdir()

        assert directory.task_path("0_9") == tmp_path / "flights" / "0_9"
        assert directory.task_ids() == ("0_9", "0_10", "1_0")


def test_the_same_application_is_let_in_again_and_new_topics_are_added(tmp_path: Path) -> None:
    prepared(tmp_path)
    with opened(tmp_path) as directory:
        check(directory, {"arrivals": 2})
        check(directory, {**COUNTS, "arrivals": 2})
        with pytest.raises(ProcessorStateError, match="'arrivals' had 2 partitions, now it has 3"):
            check(directory, {"arrivals": 3})


def test_state_is_no_beginning_of_a_changelog_that_was_created_anew(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        check(directory, COUNTS, {"flights-counts-changelog": "A"})
        check(directory, COUNTS, {"flights-counts-changelog": "B"})  # there is no state yet
        directory.task_path("0_1")
        check(directory, COUNTS, {"flights-counts-changelog": "B"})
        check(directory, COUNTS)
        with pytest.raises(
            ProcessorStateError, match="flights-counts-changelog that was deleted and created"
        ):
            check(directory, COUNTS, {"flights-counts-changelog": "C"})


def test_brokers_that_begin_to_give_ids_make_no_new_changelog(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        check(directory, COUNTS)
        directory.task_path("0_1")
        check(directory, COUNTS, {"flights-counts-changelog": NO_TOPIC_ID})
        check(directory, COUNTS, {"flights-counts-changelog": "A"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"application_id": "trains"}, "belongs to application 'trains'"),
        ({"format": 0}, f"has format 0, and this release reads format {STATE_FORMAT}"),
        ({"fingerprint": "f0"}, "topology whose stores"),
        ({"partition_counts": {"departures": 2}}, "'departures' had 2 partitions, now it has 4"),
    ],
)
def test_state_that_does_not_fit_is_refused_with_a_remedy(tmp_path: Path, change: dict, message: str) -> None:
    prepared(tmp_path)
    path = tmp_path / "flights" / "streamapp.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))

    with (
        opened(tmp_path) as directory,
        pytest.raises(ProcessorStateError, match=f"{message}.*delete the folder"),
    ):
        check(directory, COUNTS)
    assert json.loads(path.read_text()).items() >= change.items()


def test_a_folder_without_state_fits_each_format(tmp_path: Path) -> None:
    prepared(tmp_path)
    path = tmp_path / "flights" / "streamapp.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 0}))

    with opened(tmp_path) as directory:
        directory.wipe("0_3")
        check(directory, COUNTS)
    assert json.loads(path.read_text())["format"] == STATE_FORMAT


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_state_without_readable_metadata_is_refused(tmp_path: Path, text: str | None) -> None:
    prepared(tmp_path)
    path = tmp_path / "flights" / "streamapp.json"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)

    with opened(tmp_path) as directory, pytest.raises(ProcessorStateError, match=r"streamapp\.json.*delete"):
        check(directory, COUNTS)


def test_wipe_removes_one_task(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        (directory.task_path("0_0") / "file").write_text("state")
        directory.task_path("0_1")
        directory.wipe("0_0")
        directory.wipe("0_0")

        assert directory.task_ids() == ("0_1",)
        with pytest.raises(ValueError, match="task id like '0_3'"):
            directory.wipe("../other")


def test_a_wipe_that_was_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    prepared(tmp_path)
    (tmp_path / "flights" / ".wiped-0_7").mkdir()

    with opened(tmp_path) as directory:
        assert directory.task_ids() == ("0_3",)
        assert not list(directory.path.glob(".wiped-*"))


def test_a_second_process_is_told_which_one_holds_the_folder(tmp_path: Path) -> None:
    holder = (
        "import sys, os; from streamapp.state.directory import StateDirectory; "
        "held = StateDirectory(sys.argv[1], 'flights'); print(os.getpid(), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        pid = child.stdout.readline().strip()
        with pytest.raises(LockError, match=f"in use by process {pid}"):
            opened(tmp_path)
        with opened(tmp_path, "another"):
            pass
        child.kill()
    with opened(tmp_path):
        pass


def test_the_lock_holds_within_a_process_too(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(LockError, match="state_dir"):
        opened(tmp_path)
    first.close()
    first.close()
    opened(tmp_path).close()


@pytest.mark.parametrize("application_id", ["", "a/b", "..", "naïve", "a b"])
def test_an_application_id_that_is_no_folder_name_is_refused(tmp_path: Path, application_id: str) -> None:
    with pytest.raises(ConfigError, match="application_id"):
        opened(tmp_path, application_id)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as directory:

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(DiskFullError, match=r"No space is left.*state_dir"):
            check(directory, COUNTS)


def test_the_id_of_a_process_lasts(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        id = directory.process_id()
        assert directory.process_id() == id
    with opened(tmp_path) as directory:
        assert directory.process_id() == id


def test_a_disk_that_fills_leaves_no_empty_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start took the empty file as its id. Two such workers had one transactional id, and fenced each
    other."""
    with opened(tmp_path) as directory, monkeypatch.context() as patched:

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patched.setattr("os.fsync", full)
        with pytest.raises(DiskFullError, match=r"No space is left.*state_dir"):
            directory.process_id()
    with opened(tmp_path) as directory:
        assert len(directory.process_id()) == 36
        (directory.path / "process-id").write_text("")  # by an earlier release, or by a power failure
        assert len(directory.process_id()) == 36


@pytest.mark.parametrize("found", [bytes(36), b"\xb8\xff" * 18, b"0f3a-"], ids=["zeros", "noise", "torn"])
def test_an_id_that_is_damaged_is_replaced(tmp_path: Path, found: bytes) -> None:
    """Bytes that are no text ended each start with a traceback. Zeros were an id that several workers could have."""
    with opened(tmp_path) as directory:
        (directory.path / "process-id").write_bytes(found)
        id = directory.process_id()
        assert str(uuid.UUID(id)) == id
        assert directory.process_id() == id


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProcessorStateError, match="cannot be used"):
        opened(tmp_path / "file")


def test_a_refused_folder_says_what_has_changed_since(tmp_path: Path) -> None:
    def plan(size: int) -> Plan:
        builder = StreamsBuilder(StreamsConfig("flights"))
        words = builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde())
        windows = TimeWindows.of_size_with_no_grace(size)
        words.group_by_key().windowed_by(windows).count(materialized=Materialized("w"))
        return builder.build().plan()

    def changes(written: Mapping[str, Any]) -> str:
        return str(compare_topologies(written, plan(20)).findings[0])

    with opened(tmp_path) as directory:
        before = plan(10)
        directory.check_plan(before.fingerprint, snapshot(before), changes)
        directory.check_plan(before.fingerprint, snapshot(before))
        with pytest.raises(
            ProcessorStateError, match=r"different:\n.*store w: its windows change from 10 to 20 ms.*\nIf the"
        ):
            directory.check_plan(plan(20).fingerprint, snapshot(plan(20)), changes)
