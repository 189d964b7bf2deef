"""Why does nothing happen? What stands out in a worker's status, in sentences, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from streamapp.web.sampler import Sampler
from streamapp.web.view_source import InputStatus, TableInfo, TaskStatus

__all__ = ["Finding", "findings"]

_SETTLE_SECONDS = 10
_REBALANCE_SECONDS = 30
_GROWING_AFTER = 1_000
_DROPPED_SHARE = 0.01

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation: what it is about, what was seen, and what to look at next."""

    severity: Severity
    subject: str
    message: str
    hint: str


def findings(sampler: Sampler, tables: Mapping[str, TableInfo]) -> list[Finding]:
    """All that stands out; empty when the worker runs and keeps up."""
    found = [*_worker(sampler), *_paused(sampler), *_unowned(sampler, tables)]
    for task in sampler.status.tasks:
        found += _restores(sampler, task) if task.restoring else _standing(sampler, task)
    found += _falling_behind(sampler)
    found += _dropping(sampler)
    found += _open_circuits(sampler)
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
                "Its log has the traceback; it does not process until it is restarted.",
            )
        case "stuck":
            yield Finding(
                "error",
                "worker",
                f"Something holds the worker up{because}.",
                "User code that does not come back within max_poll_interval_ms ends the worker, and its log shows where it is; "
                "brokers and the consumer group are waited for; rollbacks without a commit end it after 5 minutes.",
            )
        case "rebalancing" | "starting" if seconds >= _REBALANCE_SECONDS:
            doing = "rebalancing" if status.state == "rebalancing" else "starting"
            yield Finding(
                "warning",
                "worker",
                f"The worker has been {doing} for {seconds:.0f} s{because}.",
                "Is the broker reachable? Does another member of the group join and leave again and again?",
            )
        case "restoring":
            yield Finding(
                "info",
                "worker",
                "The worker reads its tables back from their changelogs.",
                "Records are processed, and tables can be read, once that is done.",
            )
        case "running" if not status.tasks:
            yield Finding(
                "info",
                "worker",
                "No partitions are assigned to this worker.",
                "There are at least as many workers as partitions; this one stands by for a failover.",
            )


def _paused(sampler: Sampler) -> Iterator[Finding]:
    if sampler.status.paused:
        yield Finding(
            "warning",
            "worker",
            "The worker is paused: no records are processed.",
            "POST /resume, or `streamapp resume`, ends that.",
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
                f"No worker is known to hold partition {listed} of {table.name}.",
                "Views of these partitions answer 503 until a worker takes them over.",
            )


def _restores(sampler: Sampler, task: TaskStatus) -> Iterator[Finding]:
    for each in task.restoring:
        standstill = sampler.standstill(task, each)
        if each.remaining and not each.queued and standstill >= _SETTLE_SECONDS:
            yield Finding(
                "warning",
                f"{each.store} {each.partition}",
                f"The restore of {each.store} has stood at offset {each.position} of {each.end} "
                f"for {standstill:.0f} s.",
                f"Can partition {each.partition} of {each.topic} be read? Does it have a leader? Or a transaction that nobody "
                "ends (kafka-transactions.sh find-hanging)?",
            )


def _processes(sampler: Sampler) -> bool:
    return sampler.status.state == "running" and not sampler.status.paused


def _stands(sampler: Sampler, task: TaskStatus, each: InputStatus) -> bool:
    return bool(each.lag) and sampler.standstill(task, each) >= _SETTLE_SECONDS


def _standing(sampler: Sampler, task: TaskStatus) -> Iterator[Finding]:
    if not _processes(sampler):
        return
    for each in task.inputs:
        if _stands(sampler, task, each):
            message = (
                f"{each.topic}-{each.partition} has stood at offset {each.position} "
                f"for {sampler.standstill(task, each):.0f} s; {each.lag:,} records wait."
            )
            yield Finding("warning", f"task {task.id}", message, _why_it_stands(task, each))


def _falling_behind(sampler: Sampler) -> Iterator[Finding]:
    """One for each topic: its partitions fall behind together, and the remedy is the same."""
    if not _processes(sampler):
        return
    topics: dict[str, list[tuple[TaskStatus, InputStatus, float]]] = {}
    for task in sampler.status.tasks:
        for each in task.inputs if not task.restoring else ():
            growth = sampler.lag_growth(task, each)
            if (each.lag or 0) >= _GROWING_AFTER and growth > 0 and not _stands(sampler, task, each):
                topics.setdefault(each.topic, []).append((task, each, growth))
    for topic, behind in topics.items():
        lag = sum(each.lag or 0 for _, each, _ in behind)
        growth = sum(growth for _, _, growth in behind)
        tasks = sorted({task.id for task, _, _ in behind})
        throughput = sum(sampler.throughput(task) for task, _, _ in behind)
        partitions = sorted(each.partition for _, each, _ in behind)
        yield Finding(
            "warning",
            topic,
            f"{topic} falls behind: {lag:,} records wait, {growth:,.0f} more each second "
            f"(partition {', '.join(map(str, partitions))}).",
            f"Task {', '.join(map(str, tasks))}: {throughput:,.0f} records/s. More workers help "
            "while there are fewer of them than partitions.",
        )


def _dropping(sampler: Sampler) -> Iterator[Finding]:
    status = sampler.status
    if dropped := sum(status.dropped_records.values()):
        # Records of tasks that were here before count as dropped, and perhaps not as processed.
        share = dropped / max(dropped, sampler.processed)
        tasks = ", ".join(
            f"{task}: {count:,}" for task, count in sorted(status.dropped_records.items()) if count
        )
        yield Finding(
            "warning" if share >= _DROPPED_SHARE else "info",
            "records",
            f"{dropped:,} records were dropped since the worker started, {100 * share:.1f} % of those it took (task {tasks}).",
            "They were late, lacked a key or value, or an exception handler went on without them: the log has the last kind.",
        )
    if status.dropped_results:
        yield Finding(
            "warning",
            "results",
            f"{status.dropped_results:,} results were dropped since the worker started: brokers refused them.",
            "production_exception_handler went on without them; the log says why they were refused.",
        )


def _open_circuits(sampler: Sampler) -> Iterator[Finding]:
    for task in sampler.status.tasks:
        for each in task.parked:
            if each.circuit is not None:
                yield Finding(
                    "warning",
                    each.operator,
                    f"{each.operator} of task {task.id} takes no record: the service behind it fails ({each.circuit}).",
                    f"{each.records:,} records wait, and the next attempt comes by itself. Nothing is dropped meanwhile.",
                )


def _why_it_stands(task: TaskStatus, each: InputStatus) -> str:
    for parked in task.parked:
        if parked.closed:
            why = parked.circuit or f"{parked.records:,} records of {parked.operator} wait for a retry"
            return f"{parked.operator} takes no further record for now: {why}."
    if not each.buffered:
        return "Nothing arrives from the broker: look at the partition's leader and the network."
    empty = [
        f"{other.topic}-{other.partition}"
        for other in task.inputs
        if other is not each and not other.buffered
    ]
    if empty:
        names = " and ".join(empty)
        return f"The task waits for {names}, to take records in order of time; nothing arrives from there."
    return "Records have arrived but are not taken: one record takes long, or the worker's thread is blocked."
