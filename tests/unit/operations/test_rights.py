"""``streamapp acls`` of applications without a topology, as users type it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from streamapp import App, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.cli import main
from streamapp.consumer import KafkaOutput, ReliableConsumer
from streamapp.producer import OutboxRelay, SqliteOutbox, SyncReliableProducer

Rights = Callable[..., list[str]]


@pytest.fixture
def rights(monkeypatch: pytest.MonkeyPatch) -> Rights:
    """The rights of an object of a module."""

    def ask(subject: Any, *more: str) -> list[str]:
        module = ModuleType("application_of_this_test")
        module.subject = subject  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        done = CliRunner().invoke(main, ["acls", f"{module.__name__}:subject", "--json", *more])
        assert done.exit_code == 0, done.output
        acls = json.loads(done.stdout)
        return [
            " ".join((each["operation"], each["resource"], each["name"], each["pattern"][:6]))
            for each in acls
        ]

    return ask


def charge(*_: Any) -> None: ...


def test_a_consumer_reads_and_writes_its_letters(rights: Rights) -> None:
    consumer = ReliableConsumer("charge", ["orders", "refunds"], charge, dead_letter_queue_topic="dead")
    assert rights(consumer) == [
        "Read group charge litera",
        "Write topic dead litera",
        "Read topic orders litera",
        "Read topic refunds litera",
    ]


def test_a_consumer_with_outputs_has_transactions(rights: Rights) -> None:
    consumer = ReliableConsumer("bill", "orders", charge, guarantee="exactly_once", output=KafkaOutput())
    assert rights(consumer, "--write", "invoices") == [
        "Read group bill litera",
        "Write topic invoices litera",
        "Read topic orders litera",
        "Write transactional-id bill- prefix",
    ]


def test_a_producer_needs_more_for_transactions(rights: Rights) -> None:
    plain, sure = SyncReliableProducer("shop"), SyncReliableProducer("shop", transactions=True)
    assert rights(plain, "--write", "orders") == ["Write topic orders litera"]
    assert rights(sure, "--write", "orders") == [
        "Read group shop- prefix",
        "Read topic orders litera",
        "Write topic orders litera",
        "Write transactional-id shop- prefix",
    ]


def test_what_only_writes_needs_the_names_of_its_topics() -> None:
    """Without them, the rights would let nobody write."""
    done = CliRunner().invoke(main, ["acls", "shop", "--relay"])
    assert done.exit_code == 2
    assert "shop only writes: name its topics with --write TOPIC" in done.output


@pytest.mark.parametrize("principal", ["shop", "User:", ":shop"])
def test_a_principal_has_a_type(principal: str) -> None:
    done = CliRunner().invoke(
        main, ["acls", "shop", "--relay", "--write", "orders", "--principal", principal]
    )
    assert done.exit_code == 2
    assert "has no type: give User:" in done.output


def test_a_relay_has_transactions_of_its_own(rights: Rights) -> None:
    expected = [
        "Read group shop-outbox- prefix",
        "Read topic orders litera",
        "Write topic orders litera",
        "Write transactional-id shop-outbox- prefix",
    ]
    assert rights(OutboxRelay("shop", SqliteOutbox("orders.db")), "--write", "orders") == expected
    done = CliRunner().invoke(main, ["acls", "shop", "--relay", "--write", "orders", "--json"])
    assert done.exit_code == 0, done.output
    assert {each["principal"] for each in json.loads(done.stdout)} == {"User:shop"}
    assert len(json.loads(done.stdout)) == len(expected)


def test_an_app_without_a_topology_has_its_group_its_agents_and_its_consumers(rights: Rights) -> None:
    app = App("shop", config=StreamsConfig("shop", processing_guarantee="exactly_once_v2"))
    seen = app.Table("seen", default=int, partitions=1)

    @app.agent(app.topic("orders"))
    async def count(stream: Any) -> None:
        async for order in stream:
            seen[order] += 1

    app.consume("refunds")(charge)
    assert rights(app) == [
        "Read group shop litera",
        "Read group shop-charge litera",
        "Read topic orders litera",
        "Read topic refunds litera",
        "Create topic shop-__assignor-__leader litera",
        "Read topic shop-__assignor-__leader litera",
        "Create topic shop-seen-changelog litera",
        "Read topic shop-seen-changelog litera",
        "Write topic shop-seen-changelog litera",
        "Write transactional-id shop-agents- prefix",
    ]


def test_a_worker_with_global_tables_only_has_a_topic_for_its_leader(rights: Rights) -> None:
    def prices(builder: StreamsBuilder) -> None:
        builder.global_table("prices", key_serde=StringSerde(), value_serde=StringSerde())

    assert rights(App("shop", topology=prices)) == [
        "Read group shop litera",
        "Read topic prices litera",
        "Create topic shop-__assignor-__leader litera",
        "Read topic shop-__assignor-__leader litera",
        "Write transactional-id shop- prefix",
    ]
