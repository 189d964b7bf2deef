"""Without faults, models and topologies must give the same results. Otherwise the verdicts have no meaning."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp import StreamsBuilder, TopologyTestDriver

from .models import MODELS, Input
from .workloads import TEXT, TOPOLOGIES, describe

inputs = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60_000)), max_size=40).map(
    lambda rows: [Input(n, key, str(n), timestamp) for n, (key, timestamp) in enumerate(rows)]
)


@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(max_examples=15, deadline=None)
@given(records=inputs)
def test_the_model_of_a_workload_is_what_its_topology_does(name: str, records: list[Input]) -> None:
    builder = StreamsBuilder()
    describe(builder, name, "in", "out")
    with TopologyTestDriver(builder.build()) as driver:
        if name == "join":
            rows = driver.create_input_topic("in-rows", TEXT, TEXT)
            for key in "abc":
                rows.pipe_input(key, f"row-of-{key}", timestamp=0)
        source = driver.create_input_topic("in", TEXT, TEXT)
        for record in records:
            source.pipe_input(record.key, record.value, timestamp=record.timestamp)
        found = driver.create_output_topic("out", TEXT, TEXT).read_key_values()
    stages = TOPOLOGIES[name].stages
    for _, model, _ in stages[:-1]:
        records = [Input(n, *output, 0) for n, (_, output) in enumerate(MODELS[model](records))]
    expected = [output for _, output in MODELS[stages[-1][1]](records)]
    assert sorted(found) == sorted(expected)
    assert name == "final" or found == expected
