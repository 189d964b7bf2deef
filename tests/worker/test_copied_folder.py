"""A state folder is copied, with the id of its process, and a second worker starts with the copy."""

from __future__ import annotations

import shutil

from .conftest import Cluster


def test_a_worker_with_a_copied_folder_ends_and_the_other_worker_goes_on(cluster: Cluster) -> None:
    """Both workers ended each other's transactions at each commit, sent their results again, and were ready."""
    first = cluster.start("a")
    cluster.feed(200)
    cluster.counted()
    file = cluster.folder / "data-a" / "state" / cluster.id / "process-id"
    copy = cluster.folder / "data-b" / "state" / cluster.id / "process-id"
    copy.parent.mkdir(parents=True)
    shutil.copy(file, copy)

    second = cluster.start("b")
    assert second.wait() == 1, second.text()
    assert "has the process id of this worker" in second.text()
    assert f"Delete the file {copy} while this worker is stopped" in " ".join(second.text().split())
    cluster.feed(200)
    cluster.counted()

    copy.unlink()
    third = cluster.start("b")
    third.wait_for("ready: ")
    cluster.feed(200)
    cluster.counted()
    assert (third.terminate(), first.terminate()) == (0, 0)
    assert first.text().count("begin again at the last commit") <= 1, first.text()
