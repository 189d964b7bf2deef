"""SA2xx: retention, clean-up policies and timestamps of topics."""

from __future__ import annotations

from collections.abc import Iterator

from streamapp.operations.doctor.registry import Found, alter_topic, check
from streamapp.operations.doctor.survey import Survey, Topic
from streamapp.state.kinds import Versioned
from streamapp.state.spec import StoreSpec


def _hours(ms: int) -> str:
    return f"{ms / 3_600_000:g} h"


def _retention(topic: Topic) -> int | None:
    """The time in milliseconds for which a record is kept; None for ever, or if the setting is not known."""
    ms = topic.number("retention.ms")
    return None if ms is None or ms < 0 or "delete" not in topic.policies else ms


def _by_time(spec: StoreSpec) -> bool:
    """True for a store that deletes its old rows itself; its changelog may delete them, too."""
    return "delete" in spec.kind.topic_config["cleanup.policy"]


def _policy(topic: Topic) -> str:
    return f"cleanup.policy={','.join(sorted(topic.policies))}"


def _changelogs(survey: Survey) -> Iterator[tuple[Topic, StoreSpec]]:
    """The changelogs with their stores, without changelogs that are source topics (SA207)."""
    for sub in survey.plan.subtopologies if survey.plan is not None else ():
        for spec in sub.stores:
            topic = sub.changelog_topics.get(spec.name)
            if topic is not None and topic.name in survey.topics and topic.name not in sub.source_topics:
                yield survey.topics[topic.name], spec


@check(
    "SA201",
    "records are deleted before an outage is over",
    "loses",
    reason="Brokers delete records older than retention.ms, also while the application is stopped. Deleted "
    "records are never processed.",
    remedy=alter_topic("retention.ms=604800000")
    + ", which is 7 days. Or run the doctor with --outage HOURS, the longest time for which your application is ever "
    "stopped.",
    page="https://kafka.apache.org/documentation/#topicconfigs_retention.ms",
)
def short_retention(survey: Survey) -> Found:
    for topic in survey.of_role("input"):
        kept = _retention(topic)
        if kept is not None and kept < survey.outage_ms:
            yield (
                topic.name,
                f"retention.ms is {_hours(kept)}, the outage to survive is {_hours(survey.outage_ms)}",
            )


@check(
    "SA202",
    "records are deleted by size",
    "loses",
    reason="retention.bytes limits the size of each partition. If records come faster than they are read, brokers "
    "delete records before the application has read them.",
    remedy=alter_topic("retention.bytes=-1") + ". Set a quota, or an alert for the free space of the disk.",
    page="https://kafka.apache.org/documentation/#topicconfigs_retention.bytes",
)
def retention_by_size(survey: Survey) -> Found:
    for topic in survey.of_role("input", "repartition"):
        limit = topic.number("retention.bytes")
        if limit is not None and limit >= 0 and "delete" in topic.policies:
            yield topic.name, f"retention.bytes={limit:,}"


@check(
    "SA203",
    "the changelog of a table is not only compacted",
    "loses",
    reason='With cleanup.policy "delete", a changelog loses rows that have not changed for retention.ms. A '
    "worker that restores the table lacks these rows.",
    remedy=alter_topic("cleanup.policy=compact") + ". If rows are lost, `streamapp reset` computes the table "
    "again from the records that the inputs still have.",
    page="operators/tables.md",
)
def deleted_rows(survey: Survey) -> Found:
    for topic, spec in _changelogs(survey):
        if not _by_time(spec) and "delete" in topic.policies and _retention(topic) is not None:
            yield (
                topic.name,
                f"{_policy(topic)}, retention.ms is {_hours(_retention(topic) or 0)}",
            )


@check(
    "SA204",
    "the changelog of windows has a shorter retention than the table",
    "loses",
    reason="A worker that restores the table does not get the deleted windows. If further records of these windows "
    "come, their results begin at zero again.",
    remedy=alter_topic("retention.ms=-1") + ", the value that streamapp sets.",
    page="operators/windows.md",
)
def deleted_windows(survey: Survey) -> Found:
    for topic, spec in _changelogs(survey):
        kept = _retention(topic)
        if _by_time(spec) and kept is not None and kept < spec.kind.remembered["retention_ms"]:
            yield (
                topic.name,
                f"retention.ms is {_hours(kept)}, the store keeps {_hours(spec.kind.remembered['retention_ms'])}",
            )


@check(
    "SA205",
    "a changelog is never compacted",
    "stalls",
    reason="The changelog keeps every change, not only the last one of each key. A restore takes longer each day, and "
    "its task processes nothing meanwhile. The disks of the brokers fill.",
    remedy=alter_topic("cleanup.policy=compact") + ".",
    page="operators/tables.md",
)
def uncompacted(survey: Survey) -> Found:
    for topic, spec in _changelogs(survey):
        # Workers delete the changes of windows that have expired, and joins have cleanup.policy=delete.
        if topic.policies and not _by_time(spec) and "compact" not in topic.policies:
            yield topic.name, _policy(topic)


@check(
    "SA206",
    "a repartition topic deletes records before they are processed",
    "loses",
    reason="Brokers compare retention with the timestamp of a record. If the application reads old records, brokers "
    "delete them from the repartition topic before they are processed. Compaction keeps only the last record of each "
    "key, so an aggregation lacks the others. The topic needs neither retention nor compaction, because the "
    "application itself deletes processed records.",
    remedy=alter_topic("cleanup.policy=delete,retention.ms=-1") + ".",
    page="worker.md",
)
def repartition_deletes(survey: Survey) -> Found:
    for topic in survey.of_role("repartition"):
        kept = _retention(topic)
        if "compact" in topic.policies:
            yield topic.name, _policy(topic)
        elif kept is not None:
            yield topic.name, f"retention.ms is {_hours(kept)}"


@check(
    "SA207",
    "a topic that restores a table deletes rows by their age",
    "loses",
    reason="The topic restores a global table, or a table whose input topic serves as its changelog. A restored table "
    "lacks rows that have not changed for retention.ms.",
    remedy=alter_topic("cleanup.policy=compact") + ".",
    page="operators/tables.md",
)
def table_input(survey: Survey) -> Found:
    if survey.plan is None:
        return
    names = {store.topic for store in survey.plan.global_stores}
    names |= {
        t.name
        for sub in survey.plan.subtopologies
        for t in sub.changelog_topics.values()
        if t.name in sub.source_topics
    }
    for topic in survey.topics.values():
        if topic.name in names and _retention(topic) is not None:
            yield topic.name, f"retention.ms is {_hours(_retention(topic) or 0)}"


@check(
    "SA208",
    "offsets of a stopped group are deleted too soon",
    "doubles",
    reason="Brokers delete the offsets of a group without members after offsets.retention.minutes. A worker "
    "whose tables have rows then ends with an error. Other readers begin at auto.offset.reset: earliest processes "
    "all records again, latest skips all existing records.",
    remedy="On all brokers, set offsets.retention.minutes to more than the longest time for which your application is "
    "ever stopped (Kafka's default is 7 days).",
    page="https://kafka.apache.org/documentation/#brokerconfigs_offsets.retention.minutes",
)
def offsets_retention(survey: Survey) -> Found:
    short = {
        id: int(value)
        for id, value in survey.broker_setting("offsets.retention.minutes").items()
        if int(value) * 60_000 < survey.outage_ms
    }
    if short:
        yield (
            "brokers",
            f"{min(short.values()) / 60:g} h, the outage to survive is {_hours(survey.outage_ms)}",
        )


@check(
    "SA209",
    "brokers delete dead letters",
    "loses",
    reason="Brokers compare retention.ms with the timestamp of a letter, which is the timestamp of its record. So the "
    "letter of an old record may be gone before anyone reads the letter. retention.bytes deletes the oldest "
    "letters. Compaction keeps only the last letter of each key.",
    remedy=alter_topic("retention.ms=-1,retention.bytes=-1,cleanup.policy=delete")
    + ". The policy `delete` switches compaction off, and -1 means without limit. Add an alert for the size of the "
    "topic.",
    page="failures.md#dead-letters",
)
def deleted_letters(survey: Survey) -> Found:
    for topic in survey.of_role("dead letters"):
        kept, limit = _retention(topic), topic.number("retention.bytes")
        if kept is not None:
            yield topic.name, f"retention.ms is {_hours(kept)}"
        elif "compact" in topic.policies:
            yield topic.name, _policy(topic)
        elif limit is not None and limit >= 0:
            yield topic.name, f"retention.bytes={limit:,}"


@check(
    "SA210",
    "brokers overwrite the timestamps of an internal topic",
    "loses",
    reason="With message.timestamp.type=LogAppendTime, each record of the topic has the time at which brokers got it. "
    "Behind a repartition topic, records count in wrong windows. A table that is restored from such a changelog has "
    "these times, too. The later times move stream time ahead, so windows close too early, and the operators drop "
    "further records as late.",
    remedy=alter_topic("message.timestamp.type=CreateTime")
    + ", the value that streamapp sets. Wrong times stay in a table until `streamapp reset` computes the table again.",
    page="operators/windows.md",
)
def overwritten_timestamps(survey: Survey) -> Found:
    for topic in survey.of_role("repartition", "changelog"):
        if topic.config.get("message.timestamp.type") == "LogAppendTime":
            yield topic.name, "message.timestamp.type=LogAppendTime"


@check(
    "SA211",
    "brokers compact the versions of a table away",
    "loses",
    reason="The changelog of a versioned table has a record for each version. Compaction keeps only the last "
    "record of each key, unless min.compaction.lag.ms protects the others. A changelog that was created by hand, or "
    "for a table that was not versioned yet, lacks this setting. A restored table then lacks earlier versions.",
    remedy=alter_topic(",".join(f"{name}={value}" for name, value in Versioned.changelog_settings.items()))
    + ", the value that streamapp sets. Versions that are lost already do not come back: `streamapp reset` computes "
    "the table again.",
    page="operators/tables.md",
)
def compacted_versions(survey: Survey) -> Found:
    for topic, spec in _changelogs(survey):
        history, lag = spec.kind.history_ms, topic.number("min.compaction.lag.ms")
        if history is not None and "compact" in topic.policies and (lag or 0) < history:
            yield (
                topic.name,
                f"min.compaction.lag.ms is {lag or 0}, the table keeps versions for {_hours(history)}",
            )


@check(
    "SA212",
    "an internal topic does not exist",
    "stalls",
    reason="The group has committed offsets of the inputs. So somebody has deleted the topic, or this version of the "
    "application has not run yet. In both cases, each start of a worker fails while a table of the topology lacks its "
    "changelog. The worker does not create the changelog, because the table would begin empty in the middle of its "
    "input. A running worker ends when somebody deletes such a changelog. The records of a deleted repartition topic "
    "are lost. Without the changelog of a Faust table, the table begins empty.",
    remedy="Restore the topic. Or compute all tables anew: stop all workers, and run `streamapp reset`. A "
    "table of the topology may be new in this version, and may begin empty. Then create its changelog with the command "
    "in the worker's error. A worker itself creates a new repartition topic, and the changelog of a new Faust table.",
    page="operations.md",
)
def missing_internal(survey: Survey) -> Found:
    for name, inputs in survey.missing.items():
        yield name, f"the topic does not exist, and the group has committed offsets of {', '.join(inputs)}"


@check(
    "SA213",
    "the input of a stream is compacted",
    "loses",
    reason="The topology reads the topic as a stream of events. Compaction keeps only the last record of each key. So "
    "an application that stood still, or that begins anew, never gets the earlier records.",
    remedy=alter_topic("cleanup.policy=delete,retention.ms=-1")
    + ". If each record replaces the record before it with the same key, read the topic with `StreamsBuilder.table`, "
    "or accept the finding.",
    page="operators/tables.md",
)
def compacted_stream(survey: Survey) -> Found:
    for topic in survey.of_role("input"):
        if "compact" in topic.policies and topic.name in survey.read_as_streams:
            yield topic.name, _policy(topic)


@check(
    "SA214",
    "an input topic does not exist",
    "stalls",
    reason="The topology reads the topic. So each start of a worker fails, and a running worker ends when somebody "
    "deletes the topic.",
    remedy="Correct the name of the topic in the application. Or create the topic: `streamapp topic create TOPIC "
    "--partitions N`. If the topic was deleted, the offsets of the group belong to the old topic (SA406).",
    page="worker.md",
)
def missing_input(survey: Survey) -> Found:
    for name in survey.missing_inputs:
        yield name, "the topic does not exist, and the topology reads the topic"
