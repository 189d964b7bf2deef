"""Commands for an `App` that has agents or consumers, and no topology."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from streamapp import App
from streamapp.cli import group_offsets, main
from streamapp.errors import BrokerError, ConfigError
from streamapp.operations.offsets.subject import Subject


def with_consumers(*names: str) -> App:
    app = App("shop")
    for name in names:

        @app.consume("orders", name=name)
        async def handle(record: Any) -> None:
            """Does nothing."""

    return app


def with_agent(*consumers: str) -> App:
    app = with_consumers(*consumers)
    app.Table("counts", default=int)

    @app.agent(app.topic("payments"))
    async def pay(payments: Any) -> None:
        """Does nothing."""

    return app


@pytest.mark.parametrize(
    ("app", "group", "reads"),
    [
        (with_consumers("charge"), "shop-charge", ("orders",)),
        (with_agent(), "shop", ("payments",)),
        (with_agent("charge"), "shop", ("payments",)),
    ],
)
def test_the_group_is_that_of_the_agents_or_of_the_only_consumer(
    app: App, group: str, reads: tuple[str, ...]
) -> None:
    subject = Subject.of_app(app)
    assert (subject.group, subject.reads, subject.config) == (group, reads, app.config)
    assert subject.session_timeout_ms == app.config.session_timeout_ms


@pytest.mark.parametrize(
    ("app", "said"),
    [
        (with_consumers("charge", "refund"), "choose one with --group, shop-charge, shop-refund"),
        (with_consumers(), "no consumers, so it has no group"),
    ],
)
def test_several_groups_or_none_are_refused(app: App, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Subject.of_app(app)


def reset(monkeypatch: pytest.MonkeyPatch, app: Any) -> list[str]:
    monkeypatch.setitem(sys.modules, "shop", SimpleNamespace(app=app))
    result = CliRunner().invoke(main, ["reset", "shop"])
    assert result.exit_code == 1
    return [line.strip() for line in result.output.splitlines()]


def test_a_reset_of_consumers_tells_the_reason_and_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, *steps = reset(monkeypatch, with_consumers("charge", "refund"))
    assert "shop has only consumers, and a reset never moves the groups of consumers" in reason
    assert "STREAMAPP_BOOTSTRAP_SERVERS name the cluster" in reason
    assert steps == [
        f"streamapp offsets reset --group shop-{name} --to-earliest --execute"
        for name in ("charge", "refund")
    ]
    (said,) = reset(monkeypatch, with_consumers())
    assert "no topology, no agents and no consumers" in said


def test_something_else_than_an_app_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    (said,) = reset(monkeypatch, SimpleNamespace(config=App("shop").config))
    assert "shop is not a streamapp.App, but a SimpleNamespace. Commands about a consumer group" in said


def test_a_copy_names_the_consumers_that_would_repeat_their_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    change = SimpleNamespace(subject=SimpleNamespace(group="shop-2"), moves=(), new_topics=())
    monkeypatch.setattr(group_offsets, "plan_copy", lambda *_: change)
    monkeypatch.setattr(group_offsets, "reach", lambda client: None)
    monkeypatch.setitem(sys.modules, "shop", SimpleNamespace(app=with_agent("charge")))
    result = CliRunner().invoke(main, ["offsets", "copy", "shop", "shop-2"])
    assert result.exit_code == 0, result.output
    assert "streamapp offsets copy --group shop-charge shop-2-charge --execute" in result.output


@pytest.mark.parametrize("command", [["reset", "--to-earliest"], ["copy", "other"]])
def test_a_command_looks_for_the_cluster_first(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Kafka, these commands were silent for half a minute, and their error did not have the address."""

    def away(client: Any) -> None:
        raise BrokerError(f"nothing at {client['bootstrap.servers']}")

    monkeypatch.setattr(group_offsets, "reach", away)
    monkeypatch.setenv("STREAMAPP_BOOTSTRAP_SERVERS", "localhost:1")
    result = CliRunner().invoke(main, ["offsets", *command, "--group", "shop"])
    assert (result.exit_code, result.stderr) == (1, "Error: nothing at localhost:1\n")
