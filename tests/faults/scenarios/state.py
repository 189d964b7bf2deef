"""Local state and changelogs are damaged or deleted, their disk is full, or they belong to another application."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

from confluent_kafka import TopicPartition

from ..driver import PARTITIONS, Run, set_config
from ..matrix import EOS, scenario

DAMAGES = ("sst", "wal", "current", "manifest")


@scenario(
    30,
    fault="a file of the state is damaged while the worker is down: the task is restored",
    each={"file": DAMAGES},
    guarantees=(EOS,),
    sampled=("[count-eos-current]",),
)
def state_damaged(run: Run, file: str) -> None:
    for _ in range(2):  # opening the second time moves the write-ahead log of the first into an SST file
        run.start("a")
        run.feed(1_000)
        run.caught_up()
        run.stop("a")
    for task in run.state("a").glob("*_*"):
        _damage(task, file)
    run.history.add("fault", what=f"damage {file}")
    run.feed(200)
    run.start("a")
    run.finish()


@scenario(29, fault="the disk of the state is full: the worker says so and ends; with space it goes on")
def disk_full(run: Run) -> None:
    run.data("a").mkdir()
    # A small file system of its own, which ends with the worker.
    small = f'mount -t tmpfs -o size=64m tmpfs {run.data("a")} && exec "$@"'
    run.start("a", wrapper=("unshare", "-rm", "sh", "-c", small, "sh"))
    run.runs("a", 4)
    with run.feeding(200):
        run.commits()
        _fill(Path(f"/proc/{run.pid('a')}/root{run.data('a')}"))
        run.history.add("fault", what="fill the disk")
        run.fails("a", "No space is left on the disk of")
    run.start("b")
    run.finish()


@scenario(
    23,
    fault="the changelog is deleted while the worker is down: the worker refuses to start, and names the "
    "remedy",
    guarantees=(EOS,),
    sampled=("[count-eos]",),
)
def changelog_deleted(run: Run) -> None:
    run.start("a")
    run.feed(500)
    run.caught_up()
    run.stop("a")
    _delete(run, f"{run.id}-counts-changelog")
    run.feed(100)
    run.start("a")
    run.fails("a", "the changelog .*counts-changelog does not exist, but")


@scenario(
    23,
    fault="the changelog and the local state are both gone, but offsets are committed: the worker refuses "
    "to start, and names the remedy",
    guarantees=(EOS,),
)
def changelog_and_state_deleted(run: Run) -> None:
    run.start("a")
    run.feed(500)
    run.caught_up()
    run.stop("a")
    _delete(run, f"{run.id}-counts-changelog")
    shutil.rmtree(run.data("a"))
    run.feed(100)
    run.start("a")
    run.fails("a", "the changelog .*counts-changelog does not exist, but")


@scenario(
    23,
    fault="the changelog is deleted while the worker runs: the worker ends, and names the changelog",
    guarantees=(EOS,),
)
def changelog_deleted_live(run: Run) -> None:
    run.start("a")
    run.feed(500)
    run.caught_up()
    _delete(run, f"{run.id}-counts-changelog")
    run.feed(100)
    run.fails("a", "counts-changelog")


@scenario(
    24,
    fault="the changelog loses only records that the local state has: the worker starts, and no row is lost",
    guarantees=(EOS,),
)
def changelog_truncated_behind_state(run: Run) -> None:
    run.start("a")
    run.feed(500)
    run.caught_up()
    run.stop("a")
    rows = dict(run.read(f"{run.id}-counts-changelog"))
    _cut_changelog(run)
    run.feed(100)
    run.start("a")
    run.caught_up()
    run.stop("a")
    run.must(bool(rows), "there was a changelog")


@scenario(
    24,
    fault="the changelog is truncated, and the local state is gone: the worker refuses to start, and names"
    " the remedy",
    guarantees=(EOS,),
)
def changelog_truncated(run: Run) -> None:
    run.start("a")
    run.feed(500)
    run.caught_up()
    run.stop("a")
    _cut_changelog(run)
    shutil.rmtree(run.data("a"))
    run.feed(100)
    run.start("a")
    run.fails("a", r"counts-changelog-\d begins at offset \d+.* deleted")


@scenario(
    27,
    fault="input is deleted before it was processed: the worker logs and counts the lost offsets, and "
    "processes the rest",
    guarantees=(EOS,),
)
def input_expired(run: Run) -> None:
    run.start("a")
    run.feed(200)
    run.caught_up()
    run.stop("a")
    read = dict(run.watcher.committed)
    run.feed(100)
    _truncate(run, run.source)
    for partition in range(PARTITIONS):
        name = f"{run.source}-{partition}"
        run.history.add("expired", topic=run.source, partition=partition, first=read[name], end=run.fed[name])
    run.start("a")
    run.runs("a", 4)
    run.must("are gone (retention)" in run.log("a"), "the worker says what it could not read")
    run.caught_up()
    run.feed(100)
    run.finish()


@scenario(
    31,
    49,
    fault="a second worker is started on the same state folder: this worker refuses to start",
    guarantees=(EOS,),
)
def folder_in_use(run: Run) -> None:
    run.start("a")
    run.runs("a", 4)
    run.start("b", DATADIR=str(run.data("a")))
    run.fails("b", "is in use by process")
    run.feed(100)
    run.finish()


@scenario(
    32,
    47,
    fault="the state folder is of another application, release or topology: the worker refuses to start",
    each={"field": ("application_id", "format", "fingerprint")},
    guarantees=(EOS,),
)
def foreign_state(run: Run, field: str) -> None:
    run.start("a")
    run.feed(100)
    run.caught_up()
    run.stop("a")
    path = run.state("a") / "streamapp.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps({**known, field: 99 if field == "format" else "another"}))
    run.start("a")
    run.fails("a", "The state folder .* (belongs to|has format|was written by)")


def _fill(folder: Path) -> None:
    with (folder / "ballast").open("wb") as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(1 << 16))
            ballast.flush()


def _damage(task: Path, file: str) -> None:
    patterns = {"sst": "*.sst", "wal": "*.log", "current": "CURRENT", "manifest": "MANIFEST-*"}
    for path in task.glob(patterns[file]):
        if file == "current":
            path.unlink()
            continue
        data = bytearray(path.read_bytes())
        for at in range(len(data) // 4, 3 * len(data) // 4):
            data[at] ^= 0xFF
        path.write_bytes(data)


def _delete(run: Run, topic: str) -> None:
    for future in run.admin.delete_topics([topic], operation_timeout=30).values():
        future.result()
    run.wait_until(lambda: topic not in run.admin.list_topics(timeout=10).topics, f"{topic} is gone", 30)
    run.history.add("fault", what=f"delete {topic}")


def _cut_changelog(run: Run) -> None:
    topic = f"{run.id}-counts-changelog"
    set_config(run, topic, "cleanup.policy", "delete")  # brokers refuse it for topics that are only compacted
    _truncate(run, topic)
    set_config(run, topic, "cleanup.policy", "compact")


def _truncate(run: Run, topic: str) -> None:
    end = -1  # the high watermark
    wanted = [TopicPartition(topic, p, end) for p in range(PARTITIONS)]
    for future in run.admin.delete_records(wanted).values():
        future.result()
    run.history.add("fault", what=f"truncate {topic}")
