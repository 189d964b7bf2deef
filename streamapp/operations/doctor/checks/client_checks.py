"""SA5xx: settings of the application, and of other producers and consumers (``--producer``, ``--consumer``)."""

from __future__ import annotations

from collections.abc import Iterator

from streamapp._base.counted import counted
from streamapp.operations.doctor.client_files import ClientFile
from streamapp.operations.doctor.registry import Found, check
from streamapp.operations.doctor.survey import Survey


def _clients(survey: Survey, role: str) -> Iterator[ClientFile]:
    return (client for client in survey.clients if client.role == role)


@check(
    "SA501",
    "a producer does not wait for the replicas",
    "loses",
    reason="With acks=0 or 1, a record counts as written before other brokers have a copy. If the leader then "
    "fails, the record may be lost without an error.",
    remedy="Set acks=all.",
    page="https://kafka.apache.org/documentation/#producerconfigs_acks",
)
def acks(survey: Survey) -> Found:
    for client in _clients(survey, "producer"):
        if client["acks"] != "all":
            yield client.name, client.said("acks")
    if survey.app is not None and survey.app.conf.producer_acks != -1:
        yield "producer_acks", f"producer_acks={survey.app.conf.producer_acks} of the agents' producer"


@check(
    "SA502",
    "a producer's retries may double and reorder records",
    "doubles",
    reason="Without idempotence, a record is written twice if the answer to the first attempt is lost and the producer "
    "tries again. Later records may also overtake a record that is sent again.",
    remedy="Set enable.idempotence=true, with acks=all.",
    page="https://kafka.apache.org/documentation/#producerconfigs_enable.idempotence",
)
def idempotence(survey: Survey) -> Found:
    for client in _clients(survey, "producer"):
        if client["enable.idempotence"] != "true" and "transactional.id" not in client.given:
            yield client.name, client.said("enable.idempotence")


@check(
    "SA503",
    "a producer gives up at the first error",
    "loses",
    reason="With retries=0, a request that fails is not sent again. So records may be lost whenever the leader of "
    "their partition changes, for example at a restart of a broker.",
    remedy="Leave retries at its default. To limit the time of all attempts, set delivery.timeout.ms.",
    page="https://kafka.apache.org/documentation/#producerconfigs_retries",
)
def retries(survey: Survey) -> Found:
    for client in _clients(survey, "producer"):
        if client["retries"] == "0":
            yield client.name, client.said("retries")


@check(
    "SA504",
    "a consumer reads uncommitted records",
    "doubles",
    reason="With read_uncommitted, a consumer reads the records of an aborted transaction, and reads them again when "
    "the producer repeats the transaction.",
    remedy="Set isolation.level=read_committed.",
    page="https://kafka.apache.org/documentation/#consumerconfigs_isolation.level",
)
def isolation(survey: Survey) -> Found:
    for client in _clients(survey, "consumer"):
        if client["isolation.level"] != "read_committed":
            yield client.name, client.said("isolation.level")


@check(
    "SA505",
    "a consumer commits automatically",
    "loses",
    reason="With enable.auto.commit, the client commits offsets at intervals, also of records that the application has "
    "received, but not processed. A crash loses these records. (With Java's client, the danger exists only if other "
    "threads than the polling thread process the records.)",
    remedy="Set enable.auto.commit=false, and commit after the processing. Or, with librdkafka's client, set "
    "enable.auto.offset.store=false, and call store_offsets after the processing.",
    page="https://kafka.apache.org/documentation/#consumerconfigs_enable.auto.commit",
)
def auto_commit(survey: Survey) -> Found:
    for client in _clients(survey, "consumer"):
        stores_early = client.java or client["enable.auto.offset.store"] == "true"
        if client["enable.auto.commit"] == "true" and stores_early:
            yield client.name, client.said("enable.auto.commit")


@check(
    "SA506",
    "a group without an offset begins at the end",
    "loses",
    reason="A new group, or a group whose offsets were deleted, skips all existing records.",
    remedy="Set auto.offset.reset=earliest if every record counts.",
    page="https://kafka.apache.org/documentation/#consumerconfigs_auto.offset.reset",
)
def begins_at_end(survey: Survey) -> Found:
    for client in _clients(survey, "consumer"):
        if client["auto.offset.reset"] in ("latest", "largest", "end"):
            yield client.name, client.said("auto.offset.reset")
    if survey.config is not None and survey.config.auto_offset_reset == "latest":
        yield "auto_offset_reset", "auto_offset_reset='latest'"
    for sub in survey.plan.subtopologies if survey.plan is not None else ():
        for source in sub.sources:
            if source.offset_reset == "latest":
                for topic in (source.pattern.pattern,) if source.pattern else source.topics:
                    yield topic, f"offset_reset='latest' of the source {source.name}"


@check(
    "SA507",
    "failed records are dropped without a trace",
    "loses",
    reason='An exception handler answers "continue", and the application has no dead-letter topic that keeps '
    "the record.",
    remedy="Set dead_letter_queue_topic in the StreamsConfig. Add an alert for the size of the topic.",
    page="operators/errors.md",
)
def dropped_without_trace(survey: Survey) -> Found:
    if survey.plan is None or survey.plan.config.dead_letter_queue_topic is not None:
        return
    for name in ("deserialization", "processing", "production"):
        if getattr(survey.plan.config, f"{name}_exception_handler") == "continue":
            yield f"{name}_exception_handler", f'{name}_exception_handler="continue"'


@check(
    "SA508",
    "the application asks for one copy of its internal topics",
    "loses",
    reason="With replication_factor=1 in the StreamsConfig, changelogs and repartition topics have one "
    "replica, not the brokers' default number.",
    remedy="Set replication_factor=3, or -1 for the brokers' default. Run kafka-reassign-partitions for "
    "existing topics.",
    page="worker.md",
)
def one_copy_wanted(survey: Survey) -> Found:
    if survey.plan is not None and survey.plan.config.replication_factor == 1 and survey.plan.internal_topics:
        yield (
            "replication_factor",
            f"replication_factor=1, for {counted(len(survey.plan.internal_topics), 'topic')}",
        )
