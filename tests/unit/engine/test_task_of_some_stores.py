"""Tasks with only some of the stores of their sub-topology, as DataFrames of single tables open them."""

from __future__ import annotations

from dataclasses import replace

from streamapp import Materialized, StreamsBuilder, StreamsConfig, StringSerde, TimeWindows
from streamapp.engine.collector import NoWayOut
from streamapp.engine.current_record import CurrentRecord
from streamapp.engine.task_stores import TaskStores
from streamapp.state.backend import MemoryBackend
from streamapp.state.cache import RecordCache
from streamapp.state.row_memory import RowMemory

TEXT = StringSerde()


class Reader(CurrentRecord):
    partition, log_each_write = 0, False


def test_a_task_opens_without_the_other_stores() -> None:
    builder = StreamsBuilder(StreamsConfig("app"))
    grouped = builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key()
    for name in ("hours", "days"):
        windows = TimeWindows.of_size_with_no_grace(60_000)
        grouped.windowed_by(windows).count(materialized=Materialized(name))
    plan = builder.build().plan()
    (sub,) = plan.subtopologies
    one = replace(sub, stores=tuple(spec for spec in sub.stores if spec.name == "hours"))
    stores = TaskStores(
        one, plan.config, Reader(), MemoryBackend(), NoWayOut("a view"), RecordCache(0), RowMemory()
    )
    assert list(stores.by_name) == ["hours"]
    assert stores.needless_changes == {}
