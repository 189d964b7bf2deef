"""``streamapp acls`` on a broker with an authorizer: with what the command prints the reference application works, and with any
one right less it does not."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ..processes import Worker, free_port, start_worker, until
from ..secured import USER, SecuredKafka
from ..worker.conftest import Cluster
from . import kafka_tools

pytestmark = pytest.mark.broker
_REFUSED = re.compile(r"authorization|AuthorizationFailed|does not exist|not authorized", re.IGNORECASE)


class Guarded(SecuredKafka):
    """Its users may do nothing that no ACL allows; who comes without TLS may do everything."""

    def _write_cluster(self, cluster: Any) -> None:
        super()._write_cluster(cluster)
        with (self.data_dir / "broker-1" / "server.properties").open("a") as file:
            file.write("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n")
            file.write("super.users=User:ANONYMOUS\n")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with Guarded(tmp_path_factory.mktemp("guarded")) as broker:
        yield broker


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
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from streamapp.cli import main; main()",
                "acls",
                "tests.operations.reference_app",
                "--principal",
                f"User:{USER}",
                *more,
            ],
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def allow(self, acls: list[dict[str, str]]) -> None:
        for future in self.cluster.admin.create_acls([binding(acl) for acl in acls]).values():
            future.result()

    def start(self) -> Worker:
        worker = start_worker(
            "tests.operations.reference_app", self.cluster.folder / "a.log", self.environment
        )
        self.cluster.workers.append(worker)
        return worker

    @property
    def works(self) -> bool:
        """Everything is counted, the poison is kept, and the repartition topic is emptied."""
        repartition = f"{self.cluster.id}-counts-repartition"
        return (
            self.cluster.totals()[1] == 200
            and len(self.cluster.read(self.dead)) == 1
            and sum(self.cluster.first_offsets(repartition)) >= 200
        )


def binding(acl: dict[str, str]) -> AclBinding:
    kinds = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "transactional-id": ResourceType.TRANSACTIONAL_ID,
    }
    return AclBinding(
        kinds[acl["resource"]],
        acl["name"],
        ResourcePatternType[acl["pattern"].upper()],
        acl["principal"],
        acl["host"],
        AclOperation[acl["operation"].upper()],
        AclPermissionType.ALLOW,
    )


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
        worker = reference.start()
        until(lambda: reference.works or not worker.alive, 90, reference.cluster.story)
        assert worker.terminate() == 0, reference.cluster.story()
        assert reference.works, reference.cluster.story()
        assert not re.search("authorization", worker.text(), re.IGNORECASE), worker.text()
        # State that has to be restored needs no more.
        again = reference.start()
        until(lambda: "tasks run here" in again.text() or not again.alive, 90, reference.cluster.story)
        assert again.terminate() == 0
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
        worker = reference.start()
        until(lambda: bool(_REFUSED.search(worker.text())) or not worker.alive, 90, reference.cluster.story)
        assert _REFUSED.search(worker.text()), worker.text()
        if worker.alive:  # it goes on trying
            worker.terminate()
        repartition = f"{reference.cluster.id}-counts-repartition"
        there = repartition in reference.cluster.admin.list_topics(timeout=10).topics
        assert not (there and reference.works), reference.cluster.story()
    finally:
        reference.cluster.close()
