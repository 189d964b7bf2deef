"""Another version of an application starts without the state folder of the version before."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from streamapp.engine.metadata import RememberedTimes, metadata_of

from ..processes import free_port, until
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


def test_a_generated_name_that_changes_behind_a_repartition_topic_is_refused(cluster: Cluster) -> None:
    """The table of the new version silently began empty, although the group had read half of the input."""
    cluster.feed(200)
    first = cluster.start(app="versions_app", VERSION="rekeyed")
    cluster.counted()
    assert first.terminate() == 0

    later = cluster.start("later", app="versions_app", VERSION="rekeyed-later")
    assert later.wait() != 0
    said = " ".join(later.text().split())
    assert "-changelog does not exist, but the group" in said
    assert f"has committed offsets of {cluster.source}. The table would begin empty" in said
    assert (
        f"--partitions {PARTITIONS} --config cleanup.policy=compact --config message.timestamp.type" in said
    )


def test_records_in_a_repartition_topic_of_another_version_are_not_lost(cluster: Cluster) -> None:
    """The new version read a repartition topic of another name, and the records that waited were silently lost."""
    left = f"{cluster.id}-by-value-repartition"
    cluster.create(left)
    cluster.feed(3, topic=left)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": cluster.id})
    noted = RememberedTimes().encode(5, "A1", ["all stores"])
    at = [TopicPartition(left, number, 0, metadata=noted) for number in range(PARTITIONS)]
    consumer.commit(offsets=at, asynchronous=False)

    worker = cluster.start(app="versions_app", VERSION="one")
    assert worker.wait() != 0
    said = " ".join(worker.text().split())
    assert (
        f"the repartition topic {left} has records of an earlier version, from offset 0 of partition" in said
    )
    assert "To give the records up, delete the topic" in said

    of_agents = [
        TopicPartition(left, number, 0, metadata=metadata_of("A1", "agents 7"))
        for number in range(PARTITIONS)
    ]
    drained = [
        TopicPartition(left, tp.partition, consumer.get_watermark_offsets(tp)[1], metadata=noted) for tp in at
    ]
    for offsets in (of_agents, drained):
        consumer.commit(offsets=offsets, asynchronous=False)
        cluster.feed(20)
        worker = cluster.start("drained", app="versions_app", VERSION="one")
        cluster.counted()
        assert worker.terminate() == 0
    consumer.close()


def test_records_in_a_repartition_topic_are_not_read_with_other_serdes(cluster: Cluster) -> None:
    """Workers of two versions ran side by side, and each took the records of the other version for its own. Records
    that waited were read with the new serdes, too."""
    between = f"{cluster.id}-by-key-repartition"
    first = cluster.start(app="versions_app", VERSION="named")
    cluster.feed(200)
    cluster.counted()
    beside = cluster.start("beside", app="versions_app", VERSION="named-bytes")
    until(lambda: not beside.alive, 60.0, cluster.story)
    assert beside.wait() != 0
    said = " ".join(beside.text().split())
    assert f"tasks that read {between} have other stores or repartition topics in this version" in said
    assert first.terminate() == 0

    cluster.feed(20, topic=between)
    cluster.produced += 20
    after = cluster.start("after", app="versions_app", VERSION="named-bytes")
    assert after.wait() != 0
    said = " ".join(after.text().split())
    assert f"the repartition topic {between} has records that StringSerde/StringSerde have written" in said
    assert "This version would read them with StringSerde/BytesSerde" in said

    for version in ("named", "named-bytes"):
        worker = cluster.start(version, app="versions_app", VERSION=version)
        cluster.feed(20)
        cluster.counted()
        assert worker.terminate() == 0


def test_a_repartition_topic_that_comes_back_is_refused_with_the_tables_behind_it(cluster: Cluster) -> None:
    """A version without the tables behind a repartition topic was followed by the version before. The tables silently
    lacked the records between."""
    for version in ("named", "none"):
        cluster.feed(100)
        worker = cluster.start(version, app="versions_app", VERSION=version)
        until(lambda: cluster.committed() >= cluster.produced, 60.0, cluster.story)
        assert worker.terminate() == 0

    back = cluster.start("back", app="versions_app", VERSION="named")
    assert back.wait() != 0
    said = " ".join(back.text().split())
    assert f"did not write to the repartition topic {cluster.id}-by-key-repartition" in said
    assert "The tables behind the topic lack all records since an earlier version" in said


def test_a_worker_whose_version_has_other_stores_does_not_work_beside_the_others(cluster: Cluster) -> None:
    """Two versions of an application ran in one group without a word. The records of the partitions of the version
    without the table were missing in the table."""
    first = cluster.start(app="versions_app", VERSION="one")
    cluster.feed(200)
    cluster.counted()
    other = cluster.start("other", app="versions_app", VERSION="none")
    until(lambda: not other.alive, 60.0, cluster.story)
    assert other.wait() != 0
    said = " ".join(other.text().split())
    assert f"tasks that read {cluster.source} have other stores or repartition topics in this version" in said
    assert "Stop all workers of the other version before this worker starts" in said
    cluster.feed(200)
    cluster.counted()
    assert cluster.totals()[1] == 400
    assert first.terminate() == 0


def test_workers_with_other_functions_work_side_by_side(cluster: Cluster) -> None:
    first = cluster.start(app="versions_app", VERSION="one")
    cluster.feed(200)
    cluster.counted()
    other = cluster.start("other", app="versions_app", VERSION="one-loud")
    other.wait_for("tasks run here")
    cluster.feed(200)
    cluster.counted()
    assert first.terminate() == other.terminate() == 0


def test_a_new_version_may_follow_the_old_one_at_once_under_the_same_name(cluster: Cluster) -> None:
    """Brokers gave a worker with a group_instance_id its assignment of the old version, so the new one ended, again
    and again, although no other worker ran."""
    env = {"app": "versions_app", "INSTANCE": "a", "SESSION_MS": "60000", "WEB_PORT": str(free_port())}
    first = cluster.start(VERSION="one", **env)
    cluster.feed(200)
    cluster.counted()
    assert first.terminate() == 0
    second = cluster.start("other", VERSION="none", **env)
    second.wait_for("tasks run here", 40)
    assert second.terminate() == 0


def test_a_new_version_under_the_same_name_may_read_more_topics_or_fewer(cluster: Cluster) -> None:
    """With the assignment of the old version, nobody read a further topic of the new version, and the worker was ready.
    A topic that the new version did not read ended the worker."""
    env = {"app": "versions_app", "INSTANCE": "a", "SESSION_MS": "60000", "WEB_PORT": str(free_port())}
    more = f"{cluster.source}-more"
    cluster.create(more)
    cluster.feed(100, topic=more)
    for number, (version, read) in enumerate((("none", 0), ("wide", 100), ("none", 100))):
        cluster.feed(100)
        worker = cluster.start(f"{version}-{number}", VERSION=version, **env)
        worker.wait_for("tasks run here", 40)
        until(lambda: cluster.committed() >= cluster.produced, 60.0, cluster.story)
        until(lambda read=read: cluster.committed(more) == read, 60.0, cluster.story)
        assert worker.terminate() == 0


def test_a_worker_with_a_name_reads_the_new_partitions_of_a_topic(cluster: Cluster) -> None:
    """With the assignment from before the restart, nobody read them."""
    env = {"app": "versions_app", "INSTANCE": "a", "SESSION_MS": "60000", "WEB_PORT": str(free_port())}
    first = cluster.start(VERSION="none", **env)
    cluster.feed(100)
    until(lambda: cluster.committed() >= cluster.produced, 60.0, cluster.story)
    assert first.terminate() == 0
    (grown,) = cluster.admin.create_partitions([NewPartitions(cluster.source, 8)]).values()
    grown.result()
    cluster.producer = Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random"})
    cluster.feed(100)
    second = cluster.start(VERSION="none", **env)
    second.wait_for("tasks run here", 40)
    until(lambda: cluster.committed(partitions=8) >= cluster.produced, 60.0, cluster.story)
    assert second.terminate() == 0
