"""Findings: facts in a worker's status that a person should look at, as sentences, errors first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from streamapp._base.counted import counted
from streamapp.runners.worker.agents.assignor import WAITS_REMEDY, waits
from streamapp.runners.worker.status import SPARE, SPARE_REASON, SPARE_REMEDY
from streamapp.web.sampler import Sampler
from streamapp.web.view_source import InputStatus, TableInfo, TaskStatus, WorkerStatus

__all__ = ["Finding", "findings", "slow_consumers", "standing_agents", "standing_inputs", "standing_restores"]

_SETTLE_SECONDS = 10
_REBALANCE_SECONDS = 30
_CALL_SECONDS = 30
_GROWING_AFTER = 1_000
_DROPPED_SHARE = 0.01
_MORE_WORKERS = "More workers help while there are fewer workers than partitions."
_OUTDATED = "superseded"
"""The reason of a dropped answer in a foreign-key join whose left row has asked anew. No record is missing."""
_MOST_DROPS = 5
"""The most operators and reasons that a finding about dropped records names."""

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact that needs attention: its subject (worker, task or table), a message, and a hint for the next step."""

    severity: Severity
    subject: str
    message: str
    hint: str


def findings(sampler: Sampler, tables: Mapping[str, TableInfo]) -> list[Finding]:
    """All findings: errors first, then warnings, then facts that need no action (``info``)."""
    found = [*_worker(sampler), *_leaderless(sampler.status), *_paused(sampler), *_unowned(sampler, tables)]
    found += standing_restores(sampler)
    found += standing_inputs(sampler)
    found += _standing_copies(sampler)
    found += _standing_globals(sampler)
    found += _missing(sampler)
    found += standing_agents(sampler)
    found += _falling_behind(sampler)
    found += _agents_behind(sampler)
    found += _consumers_behind(sampler)
    found += _removed(sampler.status)
    found += _dropping(sampler)
    found += _open_circuits(sampler.status)
    found += slow_consumers(sampler.status)
    order: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda finding: order[finding.severity])


def _worker(sampler: Sampler) -> Iterator[Finding]:
    status, seconds = sampler.status, sampler.state_seconds
    because = f": {status.reason}" if status.reason else ""
    match status.state:
        case "failed":
            yield Finding(
                "error",
                "worker",
                f"The worker has failed{because}.",
                "The log of the worker has the traceback. The worker processes nothing before a restart.",
            )
        case "stuck":
            yield Finding(
                "error",
                "worker",
                f"Something holds the worker up{because}.",
                "A function that does not return within max_poll_interval_ms ends the worker, and the log shows "
                "the line of code. The worker waits for the consumer group without a limit. If brokers refuse the "
                "login of the worker, the log has their error. After 5 minutes without an answer to a commit, or of "
                "rollbacks without a commit, the worker ends. A global topic of which nothing arrives is fetched anew "
                "once a minute.",
            )
        case "rebalancing" | "starting" if seconds >= _REBALANCE_SECONDS:
            doing = "rebalancing" if status.state == "rebalancing" else "starting"
            yield Finding(
                "warning",
                "worker",
                f"The worker has been {doing} for {seconds:.0f} s{because}.",
                "The group waits for each member: for one without heartbeats up to session_timeout_ms, for one whose "
                "function does not return up to max_poll_interval_ms. Look at the other workers. Check also that the "
                "brokers are reachable, and that no member joins and leaves the group again and again."
                if status.state == "rebalancing"
                else "Check that the brokers are reachable.",
            )
        case "restoring":
            yield Finding(
                "info",
                "worker",
                "The worker restores its tables from their changelogs.",
                "Each task processes records, and its tables can be read, when its restore is complete. Agents get "
                "records when all tables of agents are restored.",
            )
        case "running" if status.has_tasks and not status.tasks and not status.standbys:
            if status.unread:
                yield Finding(
                    "warning",
                    "worker",
                    "The worker has no task: the leader of the group runs another version, which also reads "
                    f"{', '.join(sorted(status.unread))}.",
                    "Only workers of that version get tasks. Start this worker again with that version.",
                )
            else:
                yield Finding("info", "worker", SPARE, f"{SPARE_REASON} {SPARE_REMEDY}")


def _leaderless(status: WorkerStatus) -> Iterator[Finding]:
    """Partitions without a leader. A worker that runs or restores has a reason only because of these."""
    if status.state in ("running", "restoring") and status.reason:
        yield Finding(
            "warning",
            "partitions",
            f"The worker lacks partitions: {status.reason}.",
            "Start the brokers that have replicas of the partitions. `streamapp doctor` names all partitions without "
            "a leader (SA106).",
        )


def _paused(sampler: Sampler) -> Iterator[Finding]:
    if sampler.status.paused:
        yield Finding(
            "warning",
            "worker",
            "The worker is paused: no records are processed.",
            "POST /resume, or `streamapp resume`, ends the pause.",
        )


def _unowned(sampler: Sampler, tables: Mapping[str, TableInfo]) -> Iterator[Finding]:
    if sampler.status.state != "running":
        return
    for table in tables.values():
        missing = sorted(partition for partition, url in table.owners.items() if url is None)
        if missing:
            listed = ", ".join(map(str, missing))
            yield Finding(
                "warning",
                table.name,
                f"No known worker has partition {listed} of {table.name}.",
                "Requests for these partitions get status 503 until a worker has them.",
            )


def standing_restores(sampler: Sampler) -> Iterator[Finding]:
    """Stores of tasks whose restore has begun, and gets no further record."""
    for task in sampler.status.tasks:
        for each in task.restoring:
            standstill = sampler.standstill(task, each)
            if each.remaining and not each.queued and standstill >= _SETTLE_SECONDS:
                yield Finding(
                    "warning",
                    f"{each.store} {each.partition}",
                    f"The restore of {each.store} has stood at offset {each.position} of {each.end} "
                    f"for {standstill:.0f} s.",
                    f"Check that partition {each.partition} of {each.topic} has a leader and can be read. A hanging "
                    "transaction also stops a restore (kafka-transactions.sh find-hanging).",
                )


def _standing_copies(sampler: Sampler) -> Iterator[Finding]:
    for standby in sampler.status.standbys:
        for each in standby.stores:
            standstill = sampler.standstill(None, each)
            if each.remaining and standstill >= _SETTLE_SECONDS:
                yield Finding(
                    "warning",
                    f"{each.store} {each.partition}",
                    f"The copy of {each.store}, partition {each.partition}, has stood at offset {each.position} "
                    f"of {each.end} for {standstill:.0f} s.",
                    "After a failure of the worker that runs the task, the restore takes longer. "
                    + _unreadable(each.topic, each.partition),
                )


def _standing_globals(sampler: Sampler) -> Iterator[Finding]:
    for each in sampler.status.global_inputs:
        standstill = sampler.standstill(None, each)
        if each.lag and standstill >= _SETTLE_SECONDS:
            yield Finding(
                "warning",
                each.topic,
                f"The global topic {each.topic}-{each.partition} has stood at offset {each.position} for "
                f"{standstill:.0f} s; {_waiting(each.lag)}.",
                "Joins see old rows of its table. " + _unreadable(each.topic, each.partition),
            )


def _missing(sampler: Sampler) -> Iterator[Finding]:
    if sampler.status.state == "running" and sampler.state_seconds >= _SETTLE_SECONDS:
        for topic in sampler.status.missing_topics:
            yield Finding(
                "warning",
                topic,
                f"This worker reads the topic {topic}, which brokers do not have.",
                f"Create the topic, for example with `streamapp topic create {topic}`. The worker reads the topic as "
                "soon as it exists.",
            )


def standing_agents(sampler: Sampler) -> Iterator[Finding]:
    """Agents that wait for another version, and partitions of which agents finish no record, although records wait."""
    if sampler.status.state not in ("running", "restoring"):
        return
    if (leader := sampler.status.agents_wait_for) is not None:
        yield Finding("warning", "agents", f"{waits(leader)}.", f"{WAITS_REMEDY}.")
    for each in sampler.status.agent_inputs:
        standstill = sampler.standstill_of_agents(each)
        if each.lag and standstill >= _SETTLE_SECONDS:
            yield Finding(
                "warning",
                f"{each.topic}-{each.partition}",
                f"Agents have stood at offset {each.position} of {each.topic}-{each.partition} for "
                f"{standstill:.0f} s; {_waiting(each.lag)}.",
                "An agent has the record at this offset, and has not finished it. Give the calls in the agent "
                "time-outs of their own. (An agent that collects a batch with take() may wait on purpose.)"
                if each.buffered
                else "No agent has the record at this offset. The worker restores tables of agents, or nothing "
                "arrives from the broker.",
            )


def _unreadable(topic: str, partition: int) -> str:
    return (
        f"Check that partition {partition} of {topic} has a leader and can be read. The worker fetches a partition "
        "of which nothing arrives anew once a minute."
    )


def _processes(sampler: Sampler) -> bool:
    return sampler.status.state == "running" and not sampler.status.paused


def _stands(sampler: Sampler, task: TaskStatus, each: InputStatus) -> bool:
    return bool(each.lag) and sampler.standstill(task, each) >= _SETTLE_SECONDS


def standing_inputs(sampler: Sampler) -> Iterator[Finding]:
    """Inputs of which the tasks process no record, although records wait."""
    if not _processes(sampler):
        return
    behind: dict[str, list[tuple[TaskStatus, InputStatus]]] = {}
    for task in sampler.status.tasks:
        for each in task.inputs:
            if not _stands(sampler, task, each):
                continue
            if each.behind_others and _growth(sampler) <= 0:
                behind.setdefault(each.topic, []).append((task, each))
                continue
            message = (
                f"{each.topic}-{each.partition} has stood at offset {each.position} "
                f"for {sampler.standstill(task, each):.0f} s; {_waiting(each.lag or 0)}."
            )
            yield Finding("warning", f"task {task.id}", message, _why_it_stands(sampler, task, each))
    yield from (_without_turn(sampler, topic, inputs) for topic, inputs in behind.items())


def _without_turn(sampler: Sampler, topic: str, inputs: Sequence[tuple[TaskStatus, InputStatus]]) -> Finding:
    """One finding for all partitions of a topic whose records come after those of other partitions."""
    listed = ", ".join(str(each.partition) for _, each in sorted(inputs, key=lambda pair: pair[1].partition))
    seconds = max(sampler.standstill(task, each) for task, each in inputs)
    lag = sum(each.lag or 0 for _, each in inputs)
    message = f"{topic} (partition {listed}) has had no turn for {seconds:.0f} s; {_waiting(lag)}."
    return Finding("info", topic, message, _why_it_stands(sampler, *inputs[0]))


def _falling_behind(sampler: Sampler) -> Iterator[Finding]:
    """One finding for each topic. The partitions of a topic mostly fall behind together, and have the same remedy."""
    if not _processes(sampler):
        return
    topics: dict[str, list[tuple[TaskStatus, InputStatus, float]]] = {}
    for task in sampler.status.tasks:
        for each in task.inputs if not task.restoring else ():
            growth = sampler.lag_growth(task, each)
            if _grows(each.lag, growth) and not _stands(sampler, task, each):
                topics.setdefault(each.topic, []).append((task, each, growth))
    for topic, behind in topics.items():
        tasks = sorted({task.id for task, _, _ in behind})
        throughput = sum(sampler.throughput(task) for task, _, _ in behind)
        yield Finding(
            "warning",
            topic,
            f"{topic} falls behind: {_more_in((each, growth) for _, each, growth in behind)}.",
            f"Task {', '.join(map(str, tasks))}: {throughput:,.0f} records/s. {_MORE_WORKERS}",
        )


def _agents_behind(sampler: Sampler) -> Iterator[Finding]:
    """One finding for each topic that agents read."""
    if not _processes(sampler):
        return
    topics: dict[str, list[tuple[InputStatus, float]]] = {}
    for each in sampler.status.agent_inputs:
        growth = sampler.lag_growth(None, each)
        if _grows(each.lag, growth) and sampler.standstill_of_agents(each) < _SETTLE_SECONDS:
            topics.setdefault(each.topic, []).append((each, growth))
    for topic, behind in topics.items():
        yield Finding(
            "warning",
            topic,
            f"Agents fall behind in {topic}: {_more_in(behind)}.",
            f"{_MORE_WORKERS} An agent that waits for services takes more records with a larger `concurrency`.",
        )


def _consumers_behind(sampler: Sampler) -> Iterator[Finding]:
    for each in sampler.status.consumers:
        lag, growth = sum(each.lag.values()), sampler.lag_growth_of_consumer(each)
        if _grows(lag, growth) and each.circuit is None:
            yield Finding(
                "warning",
                each.name,
                f"{each.name} falls behind: {_more(lag, growth)}.",
                f"{_MORE_WORKERS} A handler that waits for services takes more records with a larger `parallelism`.",
            )


def _grows(lag: int | None, growth: float) -> bool:
    return (lag or 0) >= _GROWING_AFTER and growth > 0


def _more(lag: int, growth: float) -> str:
    return f"{_waiting(lag)}, {growth:,.0f} more each second"


def _more_in(inputs: Iterable[tuple[InputStatus, float]]) -> str:
    """Lag and growth of several partitions of a topic, with their numbers."""
    behind = sorted(inputs, key=lambda pair: pair[0].partition)
    partitions = ", ".join(str(each.partition) for each, _ in behind)
    more = _more(sum(each.lag or 0 for each, _ in behind), sum(growth for _, growth in behind))
    return f"{more} (partition {partitions})"


def _removed(status: WorkerStatus) -> Iterator[Finding]:
    """Records that brokers had removed before tasks, global tables, agents and consumers could read them."""
    found = [(str(tp), tp.topic, "the worker", each) for tp, each in status.removed_records.items()]
    found += [
        (partition, partition.rpartition("-")[0], consumer.name, each)
        for consumer in status.consumers
        for partition, each in consumer.removed.items()
    ]
    for partition, topic, reader, each in found:
        yield Finding(
            "warning",
            partition,
            f"Records of {partition} were gone before {reader} could read them: offsets {each.first:,} to "
            f"{each.last:,}. In all, {counted(each.count, 'offset is', 'offsets are')} missing since the start.",
            f"Retention or a deletion of records has removed them. Give {topic} a longer retention (retention.ms, "
            "retention.bytes) than the longest stop. Produce the lost records again, or read them from an archive.",
        )


def _dropping(sampler: Sampler) -> Iterator[Finding]:
    status = sampler.status
    by_task, drops = Counter(status.lost_records), Counter[str]()
    for (_, operator, reason), count in status.drops.items():
        if reason != _OUTDATED and count:
            drops[f"{operator} ({reason})"] += count
    if (dropped := by_task.total()) > 0:
        # A global table drops records, too, which no task processes.
        share = dropped / max(dropped, status.processed)
        tasks = ", ".join(f"{task}: {count:,}" for task, count in sorted(by_task.items()) if count > 0)
        listed = ", ".join(f"{where} {count:,}" for where, count in drops.most_common(_MOST_DROPS))
        yield Finding(
            "warning" if share >= _DROPPED_SHARE else "info",
            "records",
            f"{counted(dropped, 'record was', 'records were')} dropped since the worker started, {100 * share:.1f} % "
            f"of all its records (task {tasks}).",
            "The records were late, lacked a key or a value, or failed in a step whose exception handler "
            "went on. The log has some of the records that failed."
            + (
                f" Most drops by operator and reason: {listed}. A record counts here once for each operator and window."
                if listed
                else ""
            ),
        )
    if status.dropped_results:
        yield Finding(
            "warning",
            "results",
            f"{counted(status.dropped_results, 'result was', 'results were')} dropped since the worker started: "
            "brokers refused the results.",
            "production_exception_handler went on without these results. The log says why brokers refused them.",
        )


def _open_circuits(status: WorkerStatus) -> Iterator[Finding]:
    """Operators and consumers that take no record, because a service fails."""
    for task in status.tasks:
        for each in task.parked:
            if each.circuit is not None:
                yield Finding(
                    "warning",
                    each.operator,
                    f"{each.operator} of task {task.id} takes no record: "
                    f"a service that it calls fails ({each.circuit}).",
                    f"{_waiting(each.records)}. The operator tries again by itself, and drops nothing.",
                )
    for consumer in status.consumers:
        if consumer.circuit is not None:
            yield Finding(
                "warning",
                consumer.name,
                f"{consumer.name} takes no record: a service that it calls fails ({consumer.circuit}).",
                f"{_waiting(consumer.metrics.waiting)} in memory. The consumer tries again by itself, and drops "
                "nothing.",
            )


def slow_consumers(status: WorkerStatus) -> Iterator[Finding]:
    """Consumers whose function does not return, so that records wait behind its call."""
    for each in status.consumers:
        if each.oldest_in_work is not None and each.oldest_seconds >= _CALL_SECONDS:
            yield Finding(
                "warning",
                each.name,
                f"A call of {each.name} has not returned for {each.oldest_seconds:.0f} s: {each.oldest_in_work}; "
                f"{_waiting(each.metrics.waiting)} in memory.",
                "The function waits, for example for a service or a database. Give the calls in the function "
                "time-outs of their own.",
            )


def _why_it_stands(sampler: Sampler, task: TaskStatus, each: InputStatus) -> str:
    for parked in task.parked:
        if parked.closed:
            why = parked.circuit or f"{_waiting(parked.records)} for a retry"
            return f"{parked.operator} takes no further record for now: {why}."
    if each.behind_others:
        return (
            f"Records of other partitions come first: the worker takes {sampler.throughput():,.0f} records/s. "
            + _trend(sampler)
        )
    if not each.buffered:
        return (
            "Nothing arrives from the broker. The record at this offset may belong to an open transaction, which "
            "`streamapp doctor` finds. If not, check the partition's leader, the network, and the log of the worker: "
            "a line with THROTTLE tells that a quota of the brokers holds the worker back."
        )
    empty = [
        f"{other.topic}-{other.partition}"
        for other in task.inputs
        if other is not each and not other.buffered
    ]
    if empty:
        names = " and ".join(empty)
        return f"The task takes records in order of time, and waits for {names}, where nothing arrives."
    return (
        "Records have arrived, but the task does not take them: one record takes long, the thread is blocked, or the "
        "worker waits for brokers. The log tells of brokers that do not answer."
    )


def _growth(sampler: Sampler) -> float:
    """The growth of the lag of all inputs, in records per second."""
    return sum(sampler.lag_growth(task, each) for task in sampler.status.tasks for each in task.inputs)


def _trend(sampler: Sampler) -> str:
    growth = _growth(sampler)
    if growth > 0:
        return (
            f"The lag of the worker grows by {growth:,.0f} records/s, so the turn of this partition may not come. Run "
            "more workers, up to the number of tasks."
        )
    if growth < 0:
        return "The lag of the worker shrinks: no action is needed."
    return "No action is needed unless the lag of the worker grows. The growth is known after a minute."


def _waiting(records: int) -> str:
    return counted(records, "record waits", "records wait")
