"""The fixture `streams_worker`, with the application of the README."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.errors import StreamsError
from streamapp.testing import WorkerProcess

from ..processes import until

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def streams_broker(kafka: LocalKafka) -> LocalKafka:
    """The module has a broker already."""
    return kafka


def found(worker: WorkerProcess) -> str:
    """The rows of the departures from JFK, or the refusal of the view."""
    try:
        return json.dumps(worker.get("/tables/departures/JFK"))
    except StreamsError as error:
        return f"refused: {error}".replace("JFK", "")


@pytest.mark.broker
def test_a_worker_of_the_readme_counts(
    streams_worker: Callable[..., WorkerProcess], streams_broker: LocalKafka, tmp_path: Path
) -> None:
    name = f"departures_{uuid4().hex[:8]}"
    block = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0]
    code = block.replace('"flights"', f'"{name}"').replace('App("departures"', f'App("{name}"')
    (tmp_path / f"{name}.py").write_text(code)
    settings = KafkaSettings(bootstrap_servers=streams_broker.bootstrap_servers)
    KafkaAdmin(settings).ensure_topics([TopicSpec(name, 2)])
    worker = streams_worker(name, environ={"PYTHONPATH": str(tmp_path)})
    producer = Producer(settings.librdkafka())
    producer.produce(name, key="N14228", value='{"origin": "JFK"}')
    producer.flush()
    until(lambda: "JFK" in found(worker), 60, lambda: f"{found(worker)}\n{worker.log.read_text()}")
