"""The dropped records of tasks, as metrics show them."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import streamapp.engine.operators
from streamapp import Materialized, Processor, Record, StreamsBuilder, StringSerde, TimeWindows
from streamapp.runners.worker.drop_counts import DropCounts
from streamapp.runners.worker.placement import TaskId
from streamapp.topology.plan import Plan

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}


def counted() -> Plan:
    builder = StreamsBuilder()
    grouped = builder.stream("in", **TEXT).group_by_key()
    windows = TimeWindows.of_size_with_no_grace(10)
    grouped.windowed_by(windows).count(materialized=Materialized("hourly"))
    grouped.count()
    return builder.build().plan()


def test_drops_begin_with_zero_and_have_the_names_of_stores() -> None:
    """A rate missed the first drop, and the operator of a named store had a generated name."""
    counts = DropCounts(counted())
    unnamed = "KSTREAM-AGGREGATE-0000000003"
    known = {
        ("0_1", "hourly", "late"): 0,
        ("0_1", "hourly", "null_key"): 0,
        ("0_1", "hourly", "null_value"): 0,
        ("0_1", "hourly", "expired"): 0,
        ("0_1", unnamed, "null_key"): 0,
        ("0_1", unnamed, "null_value"): 0,
    }
    assert counts.of([TaskId(0, 1)], {}) == known
    drops = {("0_1", "KSTREAM-AGGREGATE-0000000001", "late"): 3, ("0_0", unnamed, "failed"): 1}
    more = {("0_1", "hourly", "late"): 3, ("0_0", unnamed, "failed"): 1}
    assert counts.of([TaskId(0, 1)], drops) == known | more


def test_a_processor_of_a_user_declares_nothing() -> None:
    class Keep(Processor):
        def process(self, record: Record) -> None: ...

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).process(Keep)
    assert DropCounts(builder.build().plan()).of([TaskId(0, 0)], {}) == {}


def test_operators_declare_the_reasons_for_which_they_drop() -> None:
    folder = Path(inspect.getfile(streamapp.engine.operators)).parent
    wrong: list[tuple[str, set[str], set[str]]] = []
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            dropped, declared = set[str](), set[str]()
            for each in ast.walk(node):
                if isinstance(each, ast.Call) and ast.unparse(each.func) in ("drop", "ctx.drop"):
                    values = ast.walk(each.args[0])
                    if isinstance(each.args[0], ast.IfExp):
                        values = iter((each.args[0].body, each.args[0].orelse))
                    dropped |= {v.value for v in values if isinstance(v, ast.Constant)}
                if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) == "drops" and each.value:
                    declared = set(ast.literal_eval(each.value))
            if dropped != declared:
                wrong.append((node.name, dropped, declared))
    assert wrong == []
