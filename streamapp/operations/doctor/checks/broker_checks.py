"""SA1xx: brokers, and their copies of partitions."""

from __future__ import annotations

from streamapp._base.counted import counted
from streamapp.operations.doctor.registry import Found, alter_topic, check
from streamapp.operations.doctor.survey import Survey, Topic

_KAFKA = "https://kafka.apache.org/documentation/"


def _in_sync(topic: Topic) -> int | None:
    return topic.number("min.insync.replicas")


@check(
    "SA101",
    "a topic has one replica",
    "loses",
    reason="One disk holds the only copy of a partition. A lost disk loses the records, and nobody can read or write "
    "the partition while its broker is away.",
    remedy="Run kafka-reassign-partitions with three replicas for each partition. Set "
    "default.replication.factor=3 for new topics.",
    page=_KAFKA + "#replication",
)
def one_replica(survey: Survey) -> Found:
    for topic in survey.topics.values():
        if topic.replication == 1:
            yield topic.name, f"{topic.role} topic on one of {counted(len(survey.brokers), 'broker')}"


@check(
    "SA102",
    "one replica is enough to confirm a record",
    "loses",
    reason="With min.insync.replicas=1, a record counts as written although perhaps only the leader has the record. "
    "If the disk of the leader is lost, the record is lost, too.",
    remedy=alter_topic("min.insync.replicas=2") + ".",
    page=_KAFKA + "#topicconfigs_min.insync.replicas",
)
def one_in_sync(survey: Survey) -> Found:
    for topic in survey.topics.values():
        if topic.replication > 1 and _in_sync(topic) == 1:
            yield topic.name, f"min.insync.replicas=1 of {counted(topic.replication, 'replica')}"


@check(
    "SA103",
    "all replicas are needed to confirm a record",
    "stalls",
    reason="min.insync.replicas is at least the number of replicas. So brokers refuse records with acks=all while any "
    "broker with a replica of the partition is away, also during a restart. If min.insync.replicas is larger than the "
    "number of replicas, brokers before Kafka 3.7 always refuse these records.",
    remedy=alter_topic("min.insync.replicas=2") + ". If the topic has fewer than three replicas, first run "
    "kafka-reassign-partitions with three replicas for each partition.",
    page=_KAFKA + "#topicconfigs_min.insync.replicas",
)
def all_in_sync(survey: Survey) -> Found:
    for topic in survey.topics.values():
        least = _in_sync(topic) or 0
        if topic.replication > 1 and least >= topic.replication:
            yield topic.name, f"min.insync.replicas={least} of {counted(topic.replication, 'replica')}"


@check(
    "SA104",
    "a replica that lags may become leader",
    "loses",
    reason="With unclean.leader.election.enable, a broker whose replica lacks the last records may become leader. The "
    "missing records are lost.",
    remedy=alter_topic("unclean.leader.election.enable=false") + ".",
    page=_KAFKA + "#topicconfigs_unclean.leader.election.enable",
)
def unclean_election(survey: Survey) -> Found:
    for topic in survey.topics.values():
        if topic.config.get("unclean.leader.election.enable") == "true":
            yield topic.name, "unclean.leader.election.enable=true"


@check(
    "SA105",
    "replicas are out of sync",
    "loses",
    reason="Some replicas lack the last records. If the broker with the only complete copy is lost, records are "
    "lost.",
    remedy="Check that the named brokers run, have free disk space, and are fast enough.",
    page=_KAFKA + "#monitoring",
)
def under_replicated(survey: Survey) -> Found:
    for topic in survey.topics.values():
        behind = [each for each in topic.partitions if len(each.in_sync) < len(each.replicas)]
        if behind:
            brokers = sorted({id for each in behind for id in each.replicas if id not in each.in_sync})
            yield (
                topic.name,
                f"{len(behind)} of {counted(len(topic.partitions), 'partition')}, on broker {_listed(brokers)}",
            )


@check(
    "SA106",
    "a partition has no leader",
    "stalls",
    reason="Nobody can read or write the partition. Its task stands still, and producers time out.",
    remedy="Start the brokers of its replicas. If the brokers of all replicas in sync are lost for good, use "
    "kafka-leader-election --election-type unclean, which loses the records that only these brokers had.",
    page=_KAFKA + "#basic_ops_leader_balancing",
)
def without_leader(survey: Survey) -> Found:
    for topic in survey.topics.values():
        missing = [each.number for each in topic.partitions if each.leader is None]
        if missing:
            yield topic.name, f"partition {_listed(missing)}"


@check(
    "SA107",
    "brokers create topics by themselves",
    "loses",
    reason="Brokers create a missing topic on first use, with their default number of partitions (often 1). If the "
    "name was misspelt, nobody reads the topic, and its records are lost for the application.",
    remedy="Set auto.create.topics.enable=false on all brokers, and create topics with their number of partitions.",
    page=_KAFKA + "#brokerconfigs_auto.create.topics.enable",
)
def auto_create(survey: Survey) -> Found:
    brokers = [
        id for id, value in survey.broker_setting("auto.create.topics.enable").items() if value == "true"
    ]
    if brokers:
        yield "brokers", f"auto.create.topics.enable=true on broker {_listed(sorted(brokers))}"


@check(
    "SA108",
    "all replicas of a partition are in one rack",
    "loses",
    reason="The cluster has several racks (availability zones). While the rack of these replicas is away, nobody can "
    "read or write the partition. If the rack is lost, all copies are lost.",
    remedy="Set broker.rack on each broker, and run kafka-reassign-partitions, which spreads replicas over racks.",
    page=_KAFKA + "#basic_ops_racks",
)
def one_rack(survey: Survey) -> Found:
    racks = {id: broker.rack for id, broker in survey.brokers.items()}
    if len({*racks.values()} - {None}) < 2:
        return
    for topic in survey.topics.values():
        together = [
            each.number
            for each in topic.partitions
            if len(each.replicas) > 1 and _one({racks.get(id) for id in each.replicas})
        ]
        if together:
            yield topic.name, f"partition {_listed(together)}"


def _one(racks: set[str | None]) -> bool:
    """True for one rack. The rack of brokers without `broker.rack` is not known, so they may be far apart."""
    return len(racks) == 1 and None not in racks


@check(
    "SA109",
    "the application names a rack that no broker is in",
    "costs",
    reason="client_rack lets a worker read from brokers in its rack (KIP-392). If no broker is in this rack, "
    "all reads go to the leaders, also in other racks. Many clouds charge for traffic between racks.",
    remedy="Set client_rack to the broker.rack of the brokers in the same zone, or remove the setting.",
    page="worker.md#standbys-and-tasks-that-move",
)
def unknown_rack(survey: Survey) -> Found:
    rack = None if survey.plan is None else survey.plan.config.client_rack
    racks = sorted({str(broker.rack) for broker in survey.brokers.values() if broker.rack})
    if rack is not None and rack not in racks:
        yield "client_rack", f"client_rack={rack!r}, brokers are in {', '.join(racks) or 'none'}"


@check(
    "SA110",
    "the cluster uses the old protocol of transactions",
    "doubles",
    reason="Below the feature level transaction.version 2, a record of an aborted transaction that arrives late may "
    "become part of the producer's next transaction (KIP-890). The topic then has the record twice, because the "
    "producer also sends it again. A late record may also start a transaction that never ends.",
    remedy="When all brokers have version 4.0 or newer, run kafka-features --bootstrap-server ... upgrade "
    "--feature transaction.version=2",
    page="https://cwiki.apache.org/confluence/display/KAFKA/KIP-890:+Transactions+Server-Side+Defense",
)
def old_transactions(survey: Survey) -> Found:
    if survey.features is not None and survey.features.get("transaction.version", 0) < 2:
        yield "cluster", f"transaction.version={survey.features.get('transaction.version', 0)}"


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown} and {len(numbers) - 10} more"
