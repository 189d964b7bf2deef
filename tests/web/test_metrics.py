"""The figures of a worker as Prometheus reads them."""

from __future__ import annotations

import dataclasses
import re
from typing import get_args

from streamapp.web.view_source import InputStatus, RestoreStatus, StandbyStatus, TaskStatus, WorkerState

from .conftest import Serve
from .fakes import FakeSource

SAMPLE = re.compile(r'streamapp_\w+\{(\w+="([^"\\\n]|\\.)*",?)*\} -?[0-9.e+]+')


async def test_metrics_of_tasks_restores_and_standbys(serve: Serve) -> None:
    source = FakeSource()
    restore = RestoreStatus("counts", "counts-changelog", 2, 0, 250, 1_000)
    copy = StandbyStatus("0_3", 3, True, (RestoreStatus("counts", "counts-changelog", 3, 0, 5, 12),))
    tasks = (
        TaskStatus("0_1", 1, "running", 100, (InputStatus('odd"topic', 1, 90, 100, 4),)),
        TaskStatus("0_2", 2, "restoring", 0, (InputStatus("flights", 2, None, None),), (restore,)),
    )
    source.worker = dataclasses.replace(
        source.worker,
        state="restoring",
        tasks=tasks,
        standbys=(copy,),
        paused=True,
        dropped_records={"0_1": 2, "0_0": 1},
        dropped_results=4,
    )
    response = await (await serve(source)).get("/metrics")
    text = await response.text()
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples), samples
    for line in (
        'worker_state{application="flights",state="restoring"} 1',
        'worker_state{application="flights",state="running"} 0',
        'worker_paused{application="flights"} 1',
        'dropped_records_total{application="flights",task="0_0"} 1',  # which is elsewhere now
        'dropped_records_total{application="flights",task="0_1"} 2',
        'dropped_results_total{application="flights"} 4',
        'task_ready{application="flights",task="0_1"} 1',
        'task_ready{application="flights",task="0_2"} 0',
        'input_lag{application="flights",task="0_1",topic="odd\\"topic",partition="1"} 10',
        'restore_percent{application="flights",task="0_2"} 25',
        'restore_remaining{application="flights",task="0_2"} 750',
        'standby_lag{application="flights",task="0_3",warmup="true"} 7',
    ):
        assert f"streamapp_{line}" in samples
    assert "restore_seconds_left{" not in text  # not known yet
    assert re.search(
        r"# HELP streamapp_dropped_records_total .+\n# TYPE streamapp_dropped_records_total counter\n", text
    )
    families = re.findall(r"# TYPE (\w+)", text)
    assert len(families) == len(set(families))


async def test_a_worker_is_in_one_state_whichever_it_is(serve: Serve) -> None:
    source = FakeSource()
    client = await serve(source)
    for state in get_args(WorkerState):
        source.worker = dataclasses.replace(source.worker, state=state)
        text = await (await client.get("/metrics")).text()
        assert re.findall(r'worker_state\{.*state="(\w+)"\} 1', text) == [state]
