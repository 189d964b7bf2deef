"""``streamapp offsets`` on the group of a Kafka Streams application that runs in Java."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from confluent_kafka.admin import AdminClient

from streamapp.broker import LocalKafka
from streamapp.broker.distribution import find_java
from streamapp.records import TopicPartition
from streamapp.testing import Backlog

from ..interop.handover import Application
from ..interop.java_side import class_path
from ..interop.records import make_parts
from ..processes import until
from . import kafka_tools
from .conftest import shown

HOUR = 3_600_000


def test_a_java_applications_offsets(kafka: LocalKafka, run: Callable[..., Result], tmp_path: Path) -> None:
    if not Path(find_java()).with_name("javac").exists():
        pytest.skip("compiling the Java side needs a JDK (javac)")
    id = f"java-{uuid.uuid4().hex[:8]}"
    classes = tmp_path / "classes"
    classes.mkdir()
    app = Application(id, kafka.bootstrap_servers, "at_least_once", class_path(classes), tmp_path)
    part, _ = make_parts(int(time.time() * 1000) // HOUR * HOUR - 8 * HOUR)
    app.feed(part)
    with app.running("java") as process, Backlog(app.plan, app.kafka) as backlog:
        until(lambda: backlog.empty() or not process.running, 300, lambda: app.logs[-1].read_text()[-5000:])
        assert (
            "application of Kafka Streams, streamapp or Faust, stable, 1 member"
            in run("offsets", "show", "--group", id).stdout
        )
        refused = run("offsets", "reset", "--group", id, "--to-earliest", "--execute", code=1)
        assert f"the group {id} has 1 member ({id}-" in refused.output

    # Java does not leave the group: its member stays for the session time-out.
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    until(
        lambda: not admin.describe_consumer_groups([id])[id].result(60).members, 120, app.logs[-1].read_text
    )
    theirs = kafka_tools.described(kafka.bootstrap_servers, id)
    ours = {TopicPartition(*tp): each for tp, each in shown(run, "--group", id).items()}
    committed = {tp: each for tp, each in ours.items() if each["committed"] is not None}
    assert {
        tp: (str(e["committed"]), str(e["log_end"]), str(e["lag"])) for tp, e in committed.items()
    } == theirs

    dry = run("offsets", "reset", "--group", id, "--to-earliest").stdout
    assert f"({id}-" in dry
    assert (
        "-changelog) has the records behind the new offsets in it: they would count twice (as its name says"
        in dry
    )
    run("offsets", "reset", "--group", id, "--to-earliest", "--execute", code=1)
    run("offsets", "reset", "--group", id, "--to-earliest", "--execute", "--keep-tables")
    moved = kafka_tools.described(kafka.bootstrap_servers, id)
    inputs = {tp for tp in theirs if not tp.topic.endswith("-repartition")}
    assert inputs
    assert all(moved[tp][0] == str(ours[tp]["log_start"]) for tp in inputs)
    assert all(moved[tp][0] == theirs[tp][0] for tp in theirs if tp not in inputs)
    with app.running("java") as process, Backlog(app.plan, app.kafka) as backlog:
        until(lambda: backlog.empty() or not process.running, 300, lambda: app.logs[-1].read_text()[-5000:])
        assert process.running
    assert "0  in all" in run("offsets", "lag", "--group", id).stdout
