"""The doctor's look at a group that brokers do not describe, and at sources that begin at the end."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from streamapp import StreamsBuilder, StreamsConfig, StringSerde
from streamapp.broker.consumer_groups import GroupLook
from streamapp.operations.doctor.checks.client_checks import begins_at_end
from streamapp.operations.doctor.survey import Survey
from streamapp.records import TopicPartition

TEXT: dict[str, Any] = {"key_serde": StringSerde(), "value_serde": StringSerde()}


@pytest.mark.parametrize(("committed", "unseen"), [({}, 1), ({TopicPartition("in", 0): (5, "")}, 0)])
def test_a_group_with_offsets_exists_although_brokers_call_it_dead(committed: Any, unseen: int) -> None:
    """Brokers do not describe groups of the protocol "streams" to a client of the classic protocol."""
    subject: Any = SimpleNamespace(
        plan=None,
        config=None,
        look=lambda: GroupLook("java-app", "dead", "", ()),
        committed=lambda: committed,
    )
    survey = Survey(subject)
    assert survey.group.at_rest
    assert len(survey.unseen) == unseen


def test_each_source_that_begins_at_the_end_is_a_finding() -> None:
    builder = StreamsBuilder()
    builder.stream("clicks", **TEXT, offset_reset="latest").to("out", **TEXT)
    builder.stream("prices", **TEXT, offset_reset=60_000).to("out", **TEXT)
    builder.stream("orders", **TEXT).to("out", **TEXT)
    builder.stream(re.compile("sales-.*"), **TEXT, offset_reset="latest").to("out", **TEXT)
    plan = builder.build().plan(StreamsConfig("app"))
    survey: Any = SimpleNamespace(plan=plan, config=plan.config, clients=())
    assert [topic for topic, _ in begins_at_end(survey)] == ["clicks", "sales-.*"]
