"""SA6xx: running workers (``--worker URL``), and the doctor's machine."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamapp._base.counted import counted
from streamapp.operations.doctor.registry import Found, check
from streamapp.operations.doctor.survey import Survey
from streamapp.runners.worker.status import SPARE, SPARE_REASON, SPARE_REMEDY
from streamapp.state.files import files_needed

_SHARE = 0.5
"""The largest share of ``max_poll_interval_ms`` that a record may take on average without a finding."""
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_PROCESS_BYTES = 128 * 2**20
"""The memory of a worker without state: Python, Faust, librdkafka and the web server."""


def _statuses(survey: Survey) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((report.url, report.status) for report in survey.reports if report.status is not None)


@check(
    "SA601",
    "a worker does not answer",
    "stalls",
    reason="The worker hangs or has ended, this machine cannot reach its web server, or the web server refuses the "
    "request.",
    remedy="Read the worker's log. Check the address, the port and the login.",
    page="views.md",
)
def silent(survey: Survey) -> Found:
    for report in survey.reports:
        if report.status is None:
            yield report.url, str(report.problem)


@check(
    "SA602",
    "a worker reports a problem",
    "stalls",
    reason="A stop of the processing is the worst case; some problems only delay or drop records. The worker itself "
    "has found the problem. Its view /status (docs/views.md) lists the problem under findings.",
    remedy="Do what the hint of the finding says.",
    page="views.md",
)
def not_well(survey: Survey) -> Found:
    for url, status in _statuses(survey):
        for finding in status.get("findings", ()):
            if finding["severity"] in ("error", "warning"):
                yield f"{url} {finding['subject']}", f"{finding['message']} {finding['hint']}"


@check(
    "SA603",
    "the processing time of one record comes near the time-out",
    "stalls",
    reason="On average, a record takes more than half of max_poll_interval_ms. A record that takes longer than "
    "max_poll_interval_ms ends the worker. The next worker gets the same record, and ends, too.",
    remedy="Set a longer max_poll_interval_ms. Or make the step faster, or use an asynchronous step "
    "(map_async) with a time-out.",
    page="worker.md#asynchronous-steps",
)
def slow_records(survey: Survey) -> Found:
    if survey.config is None:
        return
    limit = survey.config.max_poll_interval_ms
    for url, status in _statuses(survey):
        rate, lag = status.get("records_per_second") or 0, status.get("lag") or 0
        if rate > 0 and lag > 0 and 1_000 / rate > _SHARE * limit:
            yield url, f"{1_000 / rate:,.0f} ms for a record on average, max_poll_interval_ms={limit}"


@check(
    "SA604",
    "a worker has no task",
    "starves",
    reason=SPARE_REASON,
    remedy=SPARE_REMEDY,
    page="worker.md",
)
def idle_workers(survey: Survey) -> Found:
    for url, status in _statuses(survey):
        if any(finding["message"] == SPARE for finding in status.get("findings", ())):
            yield url, SPARE


@check(
    "SA605",
    "the limit of open files is too low",
    "stalls",
    reason="Each task with state on disk needs about 32 open files. A worker on this machine may end if it "
    "gets all tasks of the application.",
    remedy="Set a higher limit than the finding says: `ulimit -n 4096`, LimitNOFILE=4096 of a systemd unit, or "
    "--ulimit nofile=4096 of a container.",
    page="worker.md",
)
def too_few_open_files(survey: Survey) -> Found:
    tasks = _tasks_with_state(survey)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if tasks and hard != resource.RLIM_INFINITY and hard < files_needed(tasks):
        yield (
            "this machine",
            f"{counted(hard, 'file')}, {counted(tasks, 'task')} with state may need {files_needed(tasks):,}",
        )


@check(
    "SA606",
    "state may take more memory than there is",
    "stalls",
    reason="state_memory_bytes, the record cache and the process itself may need more than the memory of this "
    "machine or container. The kernel may then end the worker.",
    remedy="Set a smaller state_memory_bytes, or add memory.",
    page="worker.md",
)
def too_little_memory(survey: Survey) -> Found:
    if survey.plan is None or not _tasks_with_state(survey):
        return
    config, there = survey.plan.config, _memory()
    wanted = config.state_memory_bytes + config.statestore_cache_max_bytes + _PROCESS_BYTES
    if there is None:
        survey.unseen.append("the memory of this machine: the system does not tell")
    elif wanted > there:
        yield "this machine", f"{wanted >> 20:,} MiB with state_memory_bytes, {there >> 20:,} MiB are there"


def _tasks_with_state(survey: Survey) -> int:
    tasks = 0
    for sub in survey.plan.subtopologies if survey.plan is not None else ():
        if any(spec.persistent for spec in sub.stores):
            tasks += max((survey.subject.topics.get(topic, 0) for topic in sub.source_topics), default=0)
    return tasks


def _memory() -> int | None:
    found = []
    with suppress(OSError, ValueError):
        found.append(int(_CGROUP.read_text()))
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(1024 * int(next(line for line in lines if line.startswith("MemTotal")).split()[1]))
    return min(found, default=None)
