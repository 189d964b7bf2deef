"""Workers with a name (KIP-345): a restart moves nothing, and a name can be had only once."""

from __future__ import annotations

import re

import pytest

from ..processes import until
from .conftest import Cluster
from .member import Member


def generations(member: Member) -> list[str]:
    return re.findall(r"generation (\d+): tasks", member.worker.text())


def tasks(member: Member) -> set[str]:
    return {task["id"] for task in member.status().get("tasks", ())}


def test_a_rolling_restart_reassigns_nothing(cluster: Cluster) -> None:
    names = ("a", "b")
    settings = {"session_timeout_ms": 45_000}
    members = {name: Member(cluster, name, group_instance_id=name, **settings) for name in names}
    for member in members.values():
        member.until_it_has(2, 0)
    cluster.feed(2_000)
    cluster.counted()
    seen = {name: generations(member) for name, member in members.items()}
    for name in names:
        before, port = tasks(members[name]), members[name].port
        assert members[name].worker.terminate() == 0
        members[name] = Member(cluster, name, port=port, group_instance_id=name, **settings)
        members[name].until_it_has(2, 0)
        assert tasks(members[name]) == before
        assert "restored" not in members[name].worker.text()
        cluster.feed(500)
        cluster.counted()
    last = seen["a"][-1]
    assert generations(members["a"]) == generations(members["b"]) == [last]
    assert cluster.totals() == (3_000, 3_000)


def test_another_address_is_told_to_the_others(cluster: Cluster) -> None:
    settings = {"session_timeout_ms": 45_000}
    first = Member(cluster, "a", group_instance_id="a", **settings)
    second = Member(cluster, "b", group_instance_id="b", **settings)
    for member in (first, second):
        member.until_it_has(2, 0)
    cluster.feed(1_000)
    cluster.counted()
    assert first.worker.terminate() == 0
    first = Member(cluster, "a", group_instance_id="a", **settings)  # on another port
    first.until_it_has(2, 0)
    until(
        lambda: all(second.ask(f"/tables/counts/k{n}")[0] == 200 for n in range(50)),
        30,
        second.worker.text,
    )


def test_the_one_whose_name_was_taken_ends(cluster: Cluster) -> None:
    first = Member(cluster, "a", group_instance_id="same")
    first.until_it_has(4, 0)
    second = Member(cluster, "b", group_instance_id="same")
    assert first.worker.wait() == 1
    assert "another worker has joined the group with group_instance_id='same'" in first.worker.text()
    cluster.feed(1_000)
    cluster.counted()
    assert second.worker.terminate() == 0
    assert cluster.totals() == (1_000, 1_000)


@pytest.mark.parametrize("named", [False, True])
def test_a_stop_does_not_wait_for_a_member_that_is_gone(cluster: Cluster, named: bool) -> None:
    def start(name: str, *, named: bool = named) -> Member:
        # A session longer than a worker may take to stop: the broker waits that long for the one that is gone.
        return Member(cluster, name, group_instance_id=name if named else None, session_timeout_ms=60_000)

    def members() -> list[str]:
        group = cluster.admin.describe_consumer_groups([cluster.id])[cluster.id].result()
        return sorted(member.group_instance_id or "" for member in group.members)

    gone, rejoining = start("a", named=True), start("b")
    for member in (gone, rejoining):
        member.until_it_has(2, 0)
    joins = rejoining.worker.text().count("(Re-)joining group")
    gone.worker.close()
    joining = start("c")
    until(lambda: len(members()) == 3, 60, joining.worker.text)
    until(lambda: rejoining.worker.text().count("(Re-)joining group") > joins, 60, rejoining.worker.text)
    assert not tasks(joining)
    assert [member.worker.terminate() for member in (joining, rejoining)] == [0, 0]
    assert members() == (["a", "b", "c"] if named else ["a"])
