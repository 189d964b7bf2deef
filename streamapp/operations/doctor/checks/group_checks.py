"""SA4xx: the consumer group."""

from __future__ import annotations

from streamapp._base.counted import counted
from streamapp.operations.doctor.registry import Found, check
from streamapp.operations.doctor.survey import Survey
from streamapp.runners.earlier_topics import KEEP_COPIED
from streamapp.runners.lost_offsets import KEEP_TABLES


@check(
    "SA401",
    "records were deleted before they were read",
    "loses",
    reason="The committed offset lies before the first record of the log. The records in between are lost.",
    remedy="Set a longer retention (SA201). Produce the lost records again, or read them from an archive.",
    page="worker.md",
)
def deleted_unread(survey: Survey) -> Found:
    # Only inputs: the application itself deletes processed records of repartition topics.
    inputs = {topic.name for topic in survey.of_role("input")}
    for each in survey.positions:
        if each.partition.topic in inputs and each.committed is not None and each.committed < each.start:
            yield str(each.partition), f"committed {each.committed:,}, the log begins at {each.start:,}"


@check(
    "SA402",
    "the group is beyond the end of the log",
    "loses",
    reason="The topic was deleted and created again, or its brokers have lost records. A worker whose topology reads "
    "the topic ends with an error. A worker with agents or functions of App.consume ends, too, if their offsets name "
    "the id of a deleted topic (SA406). Otherwise agents, consumers and other clients go on at the first or the last "
    "offset, and so may read records again, or leave records out. The setting auto.offset.reset of the client decides "
    "(agents: consumer_auto_offset_reset; functions of App.consume: auto_offset_reset).",
    remedy="To compute all tables again, run `streamapp reset`. To keep the tables and go on with the first record "
    "of the topic, run `streamapp offsets reset --to-earliest --keep-tables` for the topic. Kept tables may count a "
    "record twice that the topic has again.",
    page="operations.md#offsets",
)
def beyond_end(survey: Survey) -> Found:
    for each in survey.positions:
        if each.committed is not None and each.committed > each.end:
            yield str(each.partition), f"committed {each.committed:,}, the log ends at {each.end:,}"


@check(
    "SA403",
    "partitions have no member",
    "stalls",
    reason="The group has members, but no member reads these partitions. Their records wait.",
    remedy="Look into the programs of the group's members: which topics do they read? Then restart those that should "
    "read the topic of the finding, but do not.",
    page="worker.md",
)
def unassigned(survey: Survey) -> Found:
    group = survey.group
    # Members of a streams application name their tasks in their own format. The checks SA6xx ask the workers.
    if group.state != "stable" or group.assignor in ("faust", "stream"):
        return
    held = {tp for member in group.members for tp in member.partitions}
    for topic in {each.partition.topic for each in survey.positions}:
        of_topic = [each.partition for each in survey.positions if each.partition.topic == topic]
        missing = sorted(tp.partition for tp in of_topic if tp not in held)
        if missing:
            yield topic, f"{len(missing)} of {counted(len(of_topic), 'partition')}, such as {missing[0]}"


@check(
    "SA404",
    "brokers refuse the session time-out",
    "stalls",
    reason="No member can join with a session_timeout_ms outside group.min.session.timeout.ms and "
    "group.max.session.timeout.ms.",
    remedy="Choose a session_timeout_ms between the brokers' limits, or widen the limits.",
    page="worker.md",
)
def session_refused(survey: Survey) -> Found:
    if survey.config is None:
        return
    wanted = survey.config.session_timeout_ms
    least = _numbers(survey, "group.min.session.timeout.ms")
    most = _numbers(survey, "group.max.session.timeout.ms")
    if wanted < max(least, default=wanted):
        yield "session_timeout_ms", f"session_timeout_ms={wanted}, group.min.session.timeout.ms={max(least)}"
    if wanted > min(most, default=wanted):
        yield "session_timeout_ms", f"session_timeout_ms={wanted}, group.max.session.timeout.ms={min(most)}"


@check(
    "SA406",
    "a topic was deleted and created anew",
    "loses",
    reason="The metadata of the committed offset names an earlier topic with this name, so the offset means nothing in "
    "the new topic. Workers and consumers refuse to start, because they would pass over records of the new topic. Or "
    "the metadata names an earlier changelog. The table of the new changelog lacks rows, so workers refuse to start.",
    remedy="Run `streamapp reset` to compute all tables anew. To keep the tables, or for a consumer, run `streamapp "
    "offsets reset --to-earliest --keep-tables` for this topic. To keep the present rows of a changelog, run "
    f"`streamapp offsets reset --shift-by 0 --keep-tables`. {KEEP_COPIED}.",
    page="operations.md#offsets",
)
def created_anew(survey: Survey) -> Found:
    for each in survey.positions:
        if each.anew:
            yield str(each.partition), f"committed {each.committed:,} in an earlier topic of this name"
    for changelog in sorted({each.changelog for each in survey.positions if each.changelog}):
        yield changelog, "the offsets of the group belong to the rows of an earlier topic of this name"


@check(
    "SA407",
    "records wait for a retry that nobody makes",
    "loses",
    reason="An earlier version of the topology has parked these records. The present version has no operator of this "
    "name with this Retry, so nobody tries the records again.",
    remedy="Deploy the earlier version of the operator, with its name and its Retry, and wait until no record waits "
    "(streamapp_parked_records in /metrics). Give this Retry a limit (times, max_age) so that records that still fail "
    "become dead letters. Or, to give up the records, delete the topic that the finding names.",
    page="failures.md#four-ways-to-try-again",
)
def left_retries(survey: Survey) -> Found:
    for topic, count in survey.left_retries.items():
        yield topic, counted(count, "record")


@check(
    "SA408",
    "tables have rows, and committed offsets are missing",
    "stalls",
    reason="Rows and offsets are committed together, so the offsets have expired (offsets.retention.minutes) or were "
    "deleted. If only one topic or partition lacks them, the other offsets note that there were some. Or somebody has "
    "copied the changelogs from another cluster without the offsets. Workers refuse to start, because the "
    "tables would count records twice, or lack records.",
    remedy="Stop all workers. To compute all tables anew, run `streamapp reset`. To keep the tables, choose the next "
    "records: `streamapp offsets reset APPLICATION --to-latest --keep-tables --execute`, or with --to-time. If the "
    "finding names topics, give them with --topic.",
    page="operations.md#tables-contradict-new-offsets",
)
def rows_without_offsets(survey: Survey) -> Found:
    yield from survey.rows_without_offsets.items()


@check(
    "SA409",
    "another tool has set offsets although tables have rows",
    "stalls",
    reason="Kafka's own tool (kafka-consumer-groups), or another client, has set offsets of the group. The rows of the "
    "tables belong to other offsets, so the tables would count records twice, or lack records. Workers refuse to "
    "start.",
    remedy="Stop all workers. To compute all tables anew, run `streamapp reset`. To keep the tables and go on at these "
    f"offsets, run {KEEP_TABLES}. For topics of agents, write --group and the application id in place of APPLICATION. "
    "Use `streamapp offsets reset` to move offsets: the command names such tables first.",
    page="operations.md#offsets-that-another-tool-has-set",
)
def offsets_from_outside(survey: Survey) -> Found:
    for each in survey.from_outside:
        yield str(each.partition), f"offset {each.committed:,} has no metadata of streamapp"


def _numbers(survey: Survey, setting: str) -> list[int]:
    return [int(value) for value in survey.broker_setting(setting).values()]


@check(
    "SA405",
    "brokers refuse the transaction time-out",
    "stalls",
    reason="No worker can open its producer with a transaction_timeout_ms above transaction.max.timeout.ms.",
    remedy="Set transaction_timeout_ms to at most the brokers' limit (15 minutes by default).",
    page="worker.md",
)
def transaction_refused(survey: Survey) -> Found:
    if survey.config is None:
        return
    wanted = survey.config.transaction_timeout_ms
    most = min(_numbers(survey, "transaction.max.timeout.ms"), default=wanted)
    if wanted > most:
        yield "transaction_timeout_ms", f"transaction_timeout_ms={wanted}, transaction.max.timeout.ms={most}"
