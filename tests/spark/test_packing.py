"""What goes through a shuffle comes out in one order, however it was cut and whenever it came."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamapp.records import NO_HEADERS, TopicPartition
from streamapp.runners.spark.frames import INPUT
from streamapp.runners.spark.packing import SCHEMA, Merge, Pack, arrow_headers, packs
from streamapp.runners.spark.rows import Rows

pytestmark = pytest.mark.spark

Sent = list[tuple[int, int]]
"""By number: stream time and partition."""


def packed(source: int, sent: Sent, first: int = 0) -> list[Pack]:
    names = [b"%d-%d" % (source, first + number) for number in range(len(sent))]
    headers = [(("h", name),) if number % 3 == 0 else None for number, name in enumerate(names)]
    columns = [[time for time, _ in sent], names, names, [time for time, _ in sent]]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=False)]
    places = np.array([partition for _, partition in sent], np.int32)
    return list(packs([*arrays, arrow_headers(headers)], places, first))


@st.composite
def written(draw: st.DrawFn) -> list[list[Sent]]:
    """What each of some tasks sent, flush by flush; stream time never falls."""
    tasks = []
    for _ in range(draw(st.integers(1, 4))):
        steps = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=30))
        times = np.cumsum([step for step, _ in steps]).tolist()
        sent = [(time, partition) for time, (_, partition) in zip(times, steps, strict=True)]
        cuts = sorted({0, len(sent), *draw(st.lists(st.integers(0, len(sent)), max_size=3))})
        tasks.append([sent[a:b] for a, b in pairwise(cuts)])
    return tasks


def expected(tasks: list[list[Sent]], partition: int) -> list[bytes]:
    rows = [
        (time, source, number)
        for source, flushes in enumerate(tasks)
        for number, (time, target) in enumerate(record for flush in flushes for record in flush)
        if target == partition
    ]
    return [b"%d-%d" % (source, number) for _, source, number in sorted(rows)]


def rows_of(tasks: list[list[Sent]], partition: int) -> list[tuple[Pack, int]]:
    """The packs for one partition, as Spark sorts them."""
    found = []
    for source, flushes in enumerate(tasks):
        first = 0
        for flush in flushes:
            found += [(pack, source) for pack in packed(source, flush, first) if pack.partition == partition]
            first += len(flush)
    return sorted(found, key=lambda row: (row[0].mx, row[1], row[0].seq))


@given(written(), st.integers(1, 5))
def test_packs_come_out_by_stream_time_then_task_then_number(tasks: list[list[Sent]], per_batch: int) -> None:
    rows = rows_of(tasks, 1)
    total = sum(pack.size for pack, _ in rows)
    tp = TopicPartition("topic", 1)
    batches = []
    for at in range(0, len(rows), per_batch):
        part = rows[at : at + per_batch]
        columns = {
            "task": pa.array([1] * len(part), pa.int32()),
            "input": pa.array([0] * len(part), pa.int32()),
            "mx": pa.array([pack.mx for pack, _ in part], pa.int64()),
            "src": pa.array([source for _, source in part], pa.int32()),
            "value": pa.array([pack.data for pack, _ in part], pa.binary()),
        }
        assert columns.keys() <= INPUT.keys()
        batches.append(pa.RecordBatch.from_pydict(columns))
    read = Rows(["topic"], frozenset(["topic"]), {tp: total}, 1, iter(batches))
    records = []
    while read.left:
        records += [record for _, record in read.read()]
    read.finish()
    assert [key for record in records for key in record.keys] == expected(tasks, 1)
    assert [offset for record in records for offset in record.offsets] == list(range(total))


def test_headers_and_nulls_go_through() -> None:
    arrays = [
        pa.array([1, 2], pa.int64()),
        pa.array([None, b"k"], pa.binary()),
        pa.array([b"v", None], pa.binary()),
        pa.array([1, 2], pa.int64()),
        arrow_headers([(("a", None), ("b", b"1")), None]),
    ]
    (pack,) = packs(arrays, np.zeros(2, np.int32), 0)
    merge = Merge()
    merge.add(0, pa.py_buffer(pack.data))
    records = merge.before(None)
    assert records is not None
    assert (records.keys, records.values, records.timestamps) == ([None, b"k"], [b"v", None], [1, 2])
    assert records.headers == [(("a", None), ("b", b"1")), NO_HEADERS]
    assert merge.before(None) is None


def test_a_bound_holds_back_what_may_still_be_preceded() -> None:
    merge = Merge()
    for source in random.Random(1).sample(range(3), 3):
        for pack in packed(source, [(1, 0), (5, 0), (9, 0)]):
            merge.add(source, pa.py_buffer(pack.data))
    early = merge.before(5)
    assert early is not None
    assert early.keys == [b"0-0", b"1-0", b"2-0"]
    rest = merge.before(None)
    assert rest is not None
    assert rest.keys == [b"0-1", b"1-1", b"2-1", b"0-2", b"1-2", b"2-2"]
