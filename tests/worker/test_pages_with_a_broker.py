"""Programs of the documentation that need a broker, run as the pages have them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from streamapp import JsonSerde, StringSerde
from streamapp.broker import LocalKafka

from .conftest import Cluster

DOCS = Path(__file__).parents[2] / "docs"


def program(page: str, function: str, **names: str) -> Any:
    """The function of a page's block; ``names`` replace the names of its topics."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    (block,) = (each for each in blocks if f"def {function}(" in each)
    for old, new in names.items():
        block = block.replace(f'"{old}"', f'"{new}"')
    module: dict[str, Any] = {"StringSerde": StringSerde, "JsonSerde": JsonSerde}
    exec(compile(block, page, "exec"), module)
    return module[function]


def test_a_producer_for_threads(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAMAPP_BOOTSTRAP_SERVERS", cluster.bootstrap)
    program("producing.md", "run", orders=cluster.source)()
    topic, _, first, second = capsys.readouterr().out.split()
    assert (topic, first, second) == (cluster.source, "0", "1")


def test_topics_and_records_of_a_test_with_the_fixtures(kafka: LocalKafka) -> None:
    class Worker:
        def get(self, path: str) -> dict[str, str]:
            return {"/status": {"state": "running"}}[path]

    test = program("operators/testing.md", "test_departures", flights=f"flights-{uuid4().hex[:8]}")
    test(kafka, lambda application: Worker())
