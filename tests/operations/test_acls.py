"""``streamapp acls`` on a broker with an authorizer: with what the command prints an application works, and with any one
right less it does not."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from streamapp import StreamsConfig, StringSerde
from streamapp.broker import KafkaSettings, lasting_consumer
from streamapp.broker.consumer_groups import read_committed_offsets
from streamapp.consumer import ConsumerRecord, KafkaOutput, OutputTransaction, SyncReliableConsumer
from streamapp.errors import AuthorizationError
from streamapp.operations.acls import Acl, acls_of_consumers, acls_of_producer, acls_of_relay
from streamapp.producer import Outbox, OutboxRelay, SqliteOutbox, SyncReliableProducer, UnsentRecords
from streamapp.records import TopicPartition
from streamapp.runners.worker.clients import find_committed

from ..consumer.feeding import Feed
from ..processes import Worker, free_port, run_streamapp, start_worker, until
from ..secured import USER
from ..worker.conftest import Cluster
from . import kafka_tools
from .guarded import Guarded, allow

pytestmark = pytest.mark.broker
_REFUSED = re.compile(r"authorization|AuthorizationFailed|does not exist|not authorized", re.IGNORECASE)


class Reference:
    """The application under an id of its own, with its input."""

    def __init__(self, guarded: Guarded, folder: Path) -> None:
        self.cluster = Cluster(guarded.bootstrap_servers, folder)
        self.dead = f"{self.cluster.id}-dead"
        self.cluster.create(self.dead)
        self.environment = guarded.environment("PLAIN") | {
            "REFERENCE_ID": self.cluster.id,
            "DEAD": self.dead,
            "SOURCE": self.cluster.source,
            "SINK": self.cluster.sink,
            "DATADIR": str(folder / "data"),
            "WEB_PORT": str(free_port()),
        }
        self.cluster.feed(200)
        self.cluster.producer.produce(self.cluster.source, b"poison", b"k0")
        self.cluster.producer.flush()

    def command(self, *more: str) -> str:
        return acls_command("tests.operations.reference_app", self.environment, *more)

    def run(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of streamapp about the application."""
        environ = {**os.environ, **self.environment}
        return run_streamapp(command, "tests.operations.reference_app", *options, env=environ, timeout=600)

    def allow(self, acls: list[dict[str, str]]) -> None:
        allow(self.cluster.bootstrap, acls)

    def start(self) -> Worker:
        worker = start_worker(
            "tests.operations.reference_app", self.cluster.folder / "a.log", self.environment
        )
        self.cluster.workers.append(worker)
        return worker

    @property
    def works(self) -> bool:
        """Everything is counted, the poison is kept, and what was consumed of the repartition topic is deleted."""
        repartition = f"{self.cluster.id}-counts-repartition"
        return (
            repartition in self.cluster.admin.list_topics(timeout=10).topics
            and self.cluster.totals()[1] == self.cluster.produced
            and len(self.cluster.read(self.dead)) == 1
            and sum(self.cluster.first_offsets(repartition)) > 0
        )

    def lives(self) -> bool:
        """True if the application works, and works again where its state on disk is lost; False once it is refused."""
        for _ in ("first", "restored"):
            shutil.rmtree(self.cluster.folder / "data", ignore_errors=True)
            self.cluster.feed(20)
            worker = self.start()
            while not self.works:
                if not worker.alive or _REFUSED.search(worker.text()):
                    return False
                self.cluster.feed(1)  # a refused deletion is told with a later commit
                until(lambda: self.works or self._settled(worker), 90, self.cluster.story)  # noqa: B023
            assert worker.terminate() == 0, self.cluster.story()
        return True

    def _settled(self, worker: Worker) -> bool:
        """Counting has come to the end of the input, or to an error."""
        counted = self.cluster.totals()[1] == self.cluster.produced
        return counted or not worker.alive or bool(_REFUSED.search(worker.text()))


def acls_command(application: str, environment: dict[str, str], *more: str) -> str:
    """``streamapp acls`` in a process of its own."""
    arguments = ("acls", application, "--principal", f"User:{USER}", *more)
    done = run_streamapp(*arguments, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def label(acl: dict[str, str], id: str) -> str:
    return f"{acl['operation']} {acl['resource']} {acl['name'].removeprefix(id)}"


RIGHTS = (
    "Read group ",
    "Read topic -in",
    "Write topic -out",
    "Write topic -dead",
    "Read topic -counts-repartition",
    "Write topic -counts-repartition",
    "Create topic -counts-repartition",
    "Delete topic -counts-repartition",
    "Read topic -counts-changelog",
    "Write topic -counts-changelog",
    "Create topic -counts-changelog",
    "Write transactional-id -",
)


def test_with_the_commands_the_application_works(guarded: Guarded, tmp_path: Path) -> None:
    reference = Reference(guarded, tmp_path)
    try:
        assert sorted(
            label(acl, reference.cluster.id) for acl in json.loads(reference.command("--json"))
        ) == sorted(RIGHTS)
        for line in reference.command().splitlines():
            name, _, address, *arguments = shlex.split(line)
            assert (name, address) == ("kafka-acls", reference.environment["STREAMAPP_BOOTSTRAP_SERVERS"])
            kafka_tools.acls(guarded.bootstrap_servers, *arguments)
        assert reference.lives(), reference.cluster.story()
        for worker in reference.cluster.workers:
            assert not re.search("authorization", worker.text(), re.IGNORECASE), worker.text()
    finally:
        reference.cluster.close()


@pytest.mark.parametrize("missing", RIGHTS)
def test_with_one_right_less_the_application_does_not_work(
    guarded: Guarded, tmp_path: Path, missing: str
) -> None:
    reference = Reference(guarded, tmp_path)
    try:
        acls = json.loads(reference.command("--json"))
        allowed = [acl for acl in acls if label(acl, reference.cluster.id) != missing]
        assert len(allowed) == len(acls) - 1
        reference.allow(allowed)
        assert not reference.lives(), reference.cluster.story()
    finally:
        reference.cluster.close()


def grant(feed: Feed, acls: set[Acl], missing: str | None) -> None:
    granted = [acl.as_dict(f"User:{USER}") for acl in acls]
    left = [acl for acl in granted if label(acl, feed.group) != missing]
    assert len(left) == len(granted) - (missing is not None)
    if left:
        allow(feed.bootstrap, left)


CONSUMER_RIGHTS = ("Read group ", "Read topic -in", "Write topic -dead")
OUTPUT_RIGHTS = ("Write topic -out", "Write transactional-id -")


@pytest.mark.parametrize(
    ("missing", "output"),
    [
        *((right, False) for right in (None, *CONSUMER_RIGHTS)),
        *((right, True) for right in (None, *CONSUMER_RIGHTS, *OUTPUT_RIGHTS)),
    ],
)
def test_a_consumer_needs_each_of_its_rights_and_no_other(
    feed: Feed, missing: str | None, output: bool
) -> None:
    feed.send([("k", "1"), ("k", "poison"), ("k", "2")])

    def handle(record: ConsumerRecord[str, str], *transaction: OutputTransaction[str, str]) -> None:
        if record.value == "poison":
            raise ValueError("this record cannot be handled")
        for each in transaction:
            each.send(feed.out, key=record.key, value=record.value)

    strings = KafkaOutput(key_serde=StringSerde(), value_serde=StringSerde())
    consumer = SyncReliableConsumer(
        feed.group,
        feed.topic,
        handle,
        dead_letter_queue_topic=feed.dead,
        key_serde=StringSerde(),
        value_serde=StringSerde(),
        on_error="dead_letter",
        **({"guarantee": "exactly_once", "output": strings} if output else {}),  # type: ignore[arg-type]
    )
    acls = acls_of_consumers(consumer.config, [consumer.status])
    acls |= {Acl("topic", feed.out, "Write")} if output else set()
    grant(feed, acls, missing)
    failure = None
    try:
        with consumer:
            until(
                lambda: feed.position() == 3 or consumer.status.state == "failed",
                90,
                lambda: consumer.status,
            )
    except Exception as exc:
        failure = exc
    if missing is None:
        assert failure is None
        assert feed.position() == 3
    else:
        assert failure is not None
        assert _REFUSED.search(str(failure)), failure


PRODUCER_RIGHTS = ("Write topic -in", "Read topic -in", "Read group -", "Write transactional-id -")


@pytest.mark.parametrize(
    ("missing", "transactions"),
    [(None, False), ("Write topic -in", False), *((right, True) for right in (None, *PRODUCER_RIGHTS))],
)
def test_a_producer_needs_each_of_its_rights_and_no_other(
    feed: Feed, missing: str | None, transactions: bool, caplog: pytest.LogCaptureFixture
) -> None:
    producer = SyncReliableProducer(feed.group, transactions=transactions, close_timeout_ms=100)
    grant(feed, acls_of_producer(producer, [feed.topic]), missing)
    refused: list[str] = []

    def is_refused() -> bool:
        told = caplog.messages + ([str(sent.exception())] if sent.done() and sent.exception() else [])
        refused[:] = [
            text
            for text in told
            if re.search("authorization|Grant this client READ on the group", text, re.I)
        ]
        return bool(refused)

    with suppress(UnsentRecords), producer:
        sent = producer.send_soon(feed.topic, key=b"k", value=b"1")
        until(lambda: is_refused() or sent.done(), 90, lambda: caplog.messages)
    assert bool(refused) == (missing is not None), caplog.messages
    assert feed.written(feed.topic) == ([("k", 1)] if missing is None else [])


RELAY_RIGHTS = ("Write topic -in", "Read topic -in", "Read group -outbox-", "Write transactional-id -outbox-")


@pytest.mark.parametrize("missing", [None, *RELAY_RIGHTS])
def test_a_relay_needs_each_of_its_rights_and_no_other(
    feed: Feed, tmp_path: Path, missing: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    database = SqliteOutbox(str(tmp_path / "orders.db"))
    database.create()
    with closing(sqlite3.connect(tmp_path / "orders.db")) as connection, connection:
        Outbox(database).add(connection, feed.topic, key=b"k", value=b"1")
    relay = OutboxRelay(feed.group, database)
    grant(feed, acls_of_relay(feed.group, [feed.topic]), missing)

    def refused() -> bool:
        return bool(
            re.search("authorization|Grant this client READ on the group", caplog.text, re.IGNORECASE)
        )

    with relay:
        until(lambda: refused() or relay.metrics.relayed == 1, 90, lambda: caplog.text)
    assert refused() == (missing is not None), caplog.text
    assert feed.written(feed.topic) == ([("k", 1)] if missing is None else [])
    assert database.count() == (1 if missing else 0)


AGENT_RIGHTS = (
    "Read group ",
    "Read topic -asked",
    "Write topic -answers",
    "Write topic -dead",
    "Read topic -seen-changelog",
    "Write topic -seen-changelog",
    "Create topic -seen-changelog",
    "Read topic -__assignor-__leader",
    "Create topic -__assignor-__leader",
    "Write transactional-id -agents-",
)


class Agents:
    """An application of agents under an id of its own, exactly once, with a table."""

    def __init__(self, guarded: Guarded, folder: Path) -> None:
        folder.mkdir()
        self.cluster = Cluster(guarded.bootstrap_servers, folder)
        self.id = self.cluster.id
        self.asked, self.answers, self.dead = (f"{self.id}-{name}" for name in ("asked", "answers", "dead"))
        self.cluster.create(self.asked, self.answers, self.dead)
        self.cluster.feed(20, topic=self.asked)
        self.cluster.producer.produce(self.asked, b"poison", b"k0")
        self.cluster.producer.flush()
        login = guarded.environment("PLAIN")
        self.environment = login | {
            "APP_ID": self.id,
            "BOOTSTRAP": login["STREAMAPP_BOOTSTRAP_SERVERS"],
            "AGENT_IN": self.asked,
            "AGENT_OUT": self.answers,
            "DEAD_LETTERS": self.dead,
            "ON_ERROR": "continue",
            "TABLE": "yes",
            "DATADIR": str(folder / "data"),
            "WEB_PORT": str(free_port()),
        }

    def command(self) -> list[dict[str, str]]:
        text = acls_command("tests.worker.agents_app", self.environment, "--write", self.answers, "--json")
        return json.loads(text)  # type: ignore[no-any-return]

    def start(self) -> Worker:
        worker = start_worker("tests.worker.agents_app", self.cluster.folder / "a.log", self.environment)
        self.cluster.workers.append(worker)
        return worker

    def lives(self) -> bool:
        """False once it is refused."""
        worker = self.start()
        try:
            until(lambda: self._works() or self._refused(worker), 90, worker.text)
            return not self._refused(worker)
        finally:
            self.cluster.close()

    def _refused(self, worker: Worker) -> bool:
        return not worker.alive or bool(_REFUSED.search(worker.text()))

    def _works(self) -> bool:
        return len(self.cluster.read(self.answers)) == 40 and len(self.cluster.read(self.dead)) == 1


def test_agents_need_each_of_their_rights_and_no_other(guarded: Guarded, tmp_path: Path) -> None:
    first = Agents(guarded, tmp_path / "all")
    acls = first.command()
    assert sorted(label(acl, first.id) for acl in acls) == sorted(AGENT_RIGHTS)
    allow(guarded.bootstrap_servers, acls)
    assert first.lives(), first.cluster.workers[0].text()

    def without(missing: str) -> Agents:
        agents = Agents(guarded, tmp_path / missing.replace(" ", "_"))
        own = [acl | {"name": acl["name"].replace(first.id, agents.id)} for acl in acls]
        allow(guarded.bootstrap_servers, [acl for acl in own if label(acl, agents.id) != missing])
        return agents

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda missing: without(missing).lives(), AGENT_RIGHTS))
    assert dict(zip(AGENT_RIGHTS, found, strict=True)) == dict.fromkeys(AGENT_RIGHTS, False)


@pytest.mark.parametrize("compiled", [False, True])
def test_offsets_that_may_not_be_read_are_no_time_out(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    """A worker asked for a minute, and then advised to look for brokers that are away and a transaction that hangs."""
    for name, value in guarded.environment("PLAIN").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(lasting_consumer, "COMPILED", compiled)
    kafka, partitions = KafkaSettings.from_env(), [TopicPartition("orders", 0)]
    config = StreamsConfig(
        "shop", bootstrap_servers=kafka.bootstrap_servers, client_properties=kafka.librdkafka()
    )
    for ask in (
        lambda: find_committed(config, partitions, 60.0),
        lambda: read_committed_offsets(kafka.librdkafka(), "shop", partitions),
    ):
        with pytest.raises(AuthorizationError, match="Grant this client READ on the group"):
            ask()


def test_a_reset_needs_the_rights_that_the_page_names(guarded: Guarded, tmp_path: Path) -> None:
    reference = Reference(guarded, tmp_path)

    try:
        rights = json.loads(reference.command("--json"))
        reference.allow(rights)
        worker = reference.start()
        until(lambda: reference.works or not worker.alive, 90, reference.cluster.story)
        assert worker.terminate() == 0, reference.cluster.story()
        group = {**rights[0], "resource": "group", "name": reference.cluster.id, "operation": "Delete"}
        backfill = {**group, "name": f"{reference.cluster.id}-backfill"}
        internal = [
            {**group, "resource": "topic", "name": f"{reference.cluster.id}-counts-{kind}"}
            for kind in ("repartition", "changelog")
        ]
        for allowed, said, right in (
            ([], f"{reference.cluster.id}-backfill", "READ on the group"),
            ([backfill], f"{reference.cluster.id}-counts-changelog", "DELETE on the topic"),
            (
                internal,
                f"the consumer group {reference.cluster.id} could not be deleted",
                "DELETE on the group",
            ),
        ):
            if allowed:
                reference.allow(allowed)
            refused = reference.run("reset", "--yes")
            assert refused.returncode == 1
            assert said in refused.stderr
            assert f"Grant this client {right}" in refused.stderr
        reference.allow([group])
        done = reference.run("reset", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        reference.cluster.close()
