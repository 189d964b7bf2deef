"""Another version of an application starts without the state folder of the version before."""

from __future__ import annotations

from .conftest import PARTITIONS, Cluster


def test_a_window_of_another_size_is_refused(cluster: Cluster) -> None:
    """A worker on a new machine restored windows of ten minutes, and took them for windows of five."""
    cluster.feed(200)
    first = cluster.start(app="versions_app", VERSION="ten")
    cluster.counted()
    assert first.terminate() == 0

    other = cluster.start("elsewhere", app="versions_app", VERSION="five")
    assert other.wait() != 0
    said = " ".join(other.text().split())
    assert (
        f"{cluster.id}-counts-changelog has windows of 600000 ms, StringSerde/LongSerde, but the store counts"
        in said
    )
    assert "would read windows of 300000 ms" in said
    assert "Give the store of this version another name" in said

    back = cluster.start("third", app="versions_app", VERSION="ten")
    cluster.feed(200)
    cluster.counted()
    assert back.terminate() == 0


def test_a_store_that_comes_back_is_refused_with_its_old_rows(cluster: Cluster) -> None:
    """A version without a store was followed by a version with it, whose table silently lacked the time between."""
    cluster.feed(200)
    cluster.create(f"{cluster.id}-more-changelog", config={"cleanup.policy": "compact"})
    for version in ("two", "one"):
        worker = cluster.start(version, app="versions_app", VERSION=version)
        cluster.counted()
        assert worker.terminate() == 0
        cluster.feed(100)

    again = cluster.start("again", app="versions_app", VERSION="two")
    assert again.wait() != 0
    said = " ".join(again.text().split())
    assert f"the changelog {cluster.id}-more-changelog has rows, but the last commit of the group is" in said
    assert (
        f"If the store may begin empty, stop all workers, delete the topic {cluster.id}-more-changelog"
        in said
    )

    cluster.recreate(f"{cluster.id}-more-changelog", PARTITIONS)
    anew = cluster.start("anew", app="versions_app", VERSION="two")
    cluster.counted()
    assert anew.terminate() == 0


def test_a_new_store_with_an_empty_changelog_is_taken(cluster: Cluster) -> None:
    cluster.feed(200)
    first = cluster.start(app="versions_app", VERSION="one")
    cluster.counted()
    assert first.terminate() == 0
    cluster.create(f"{cluster.id}-more-changelog", config={"cleanup.policy": "compact"})
    for name in ("second", "third"):
        worker = cluster.start(name, app="versions_app", VERSION="two")
        cluster.feed(100)
        cluster.counted()
        assert worker.terminate() == 0
