"""Records of retries that are gone, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamapp import StreamsBuilder, StreamsConfig, StringSerde
from streamapp.operations.doctor import left_retries as module
from streamapp.operations.offsets.subject import Subject


def test_an_output_of_the_application_is_no_retry_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StreamsBuilder()
    builder.stream("orders", key_serde=StringSerde(), value_serde=StringSerde()).to("shop-orders-retry-1")
    plan = builder.build().plan(StreamsConfig("shop", bootstrap_servers="127.0.0.1:9"))
    subject: Any = Subject.of_plan(plan)
    topics = {"orders": 1, "shop-orders-retry-1": 1, "shop-pay-retry-1": 1}
    monkeypatch.setitem(subject.__dict__, "topics", topics)
    monkeypatch.setitem(subject.__dict__, "admin", None)
    monkeypatch.setattr(module, "_waiting", lambda subject, topic: 3)
    monkeypatch.setattr(module, "look_at_group", lambda admin, group: SimpleNamespace(state="dead"))
    assert module.left_retries(subject) == ({"shop-pay-retry-1": 3}, [])
