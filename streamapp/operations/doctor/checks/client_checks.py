"""SA5xx: settings of the application, and of producers and consumers beside it (``--producer``, ``--consumer``)."""

from __future__ import annotations

from collections.abc import Iterator

from streamapp.operations.doctor.client_files import ClientFile
from streamapp.operations.doctor.registry import Found, check
from streamapp.operations.doctor.survey import Survey


def _clients(survey: Survey, role: str) -> Iterator[ClientFile]:
    return (client for client in survey.clients if client.role == role)


@check(
    "SA501",
    "a producer does not wait for the replicas",
    "loses",
    reason="With acks=0 or 1, a record counts as written before it is copied. If the leader fails, the record is silently lost.",
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
    reason="Without idempotence, a record is written twice if the answer to the first attempt is lost.",
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
    reason="With retries=0, each change of a leader is an error for every record in flight.",
    remedy="Leave retries at its default. Limit the time with delivery.timeout.ms.",
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
    reason="With read_uncommitted, a consumer reads the records of a rolled-back transaction, and then their repetition.",
    remedy="Set isolation.level=read_committed.",
    page="https://kafka.apache.org/documentation/#consumerconfigs_isolation.level",
)
def isolation(survey: Survey) -> Found:
    for client in _clients(survey, "consumer"):
        if client["isolation.level"] != "read_committed":
            yield client.name, client.said("isolation.level")


@check(
    "SA505",
    "a consumer commits by the clock",
    "loses",
    reason="enable.auto.commit commits records that are still in work. A crash loses these records.",
    remedy="Set enable.auto.commit=false, and commit after the work.",
    page="https://kafka.apache.org/documentation/#consumerconfigs_enable.auto.commit",
)
def auto_commit(survey: Survey) -> Found:
    for client in _clients(survey, "consumer"):
        if client["enable.auto.commit"] == "true":
            yield client.name, client.said("enable.auto.commit")


@check(
    "SA506",
    "without an offset reading begins at the end",
    "loses",
    reason="A group without an offset (a new group, or a deleted offset) skips all records before its start.",
    remedy="Set auto.offset.reset=earliest if every record counts.",
    page="https://kafka.apache.org/documentation/#consumerconfigs_auto.offset.reset",
)
def begins_at_end(survey: Survey) -> Found:
    for client in _clients(survey, "consumer"):
        if client["auto.offset.reset"] in ("latest", "largest", "end"):
            yield client.name, client.said("auto.offset.reset")
    if survey.plan is not None and survey.plan.config.auto_offset_reset == "latest":
        yield "auto_offset_reset", "auto_offset_reset='latest'"


@check(
    "SA507",
    "records that cannot be handled are dropped without a trace",
    "loses",
    reason='An exception handler answers "continue", and no dead-letter topic keeps the record.',
    remedy="Set dead_letter_queue_topic in the StreamsConfig, and an alert for the size of the topic.",
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
    "brokers keep only one copy of internal topics, by the application's wish",
    "loses",
    reason="replication_factor=1 in the StreamsConfig replaces the brokers' default for changelogs and repartition topics.",
    remedy="Set replication_factor=3, or -1 for the brokers' default. Run kafka-reassign-partitions for existing topics.",
    page="worker.md",
)
def one_copy_wanted(survey: Survey) -> Found:
    if survey.plan is not None and survey.plan.config.replication_factor == 1 and survey.plan.internal_topics:
        yield "replication_factor", f"replication_factor=1, for {len(survey.plan.internal_topics)} topics"
