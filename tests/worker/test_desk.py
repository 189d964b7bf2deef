"""The desk on a real cluster, as a user types it: dead letters are replayed once, in order, while a worker runs."""

from __future__ import annotations

import json
import os
import random
import time
import weakref
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from streamapp.broker import KafkaAdmin, KafkaSettings
from streamapp.config import StreamsConfig
from streamapp.desk import desk as desk_module
from streamapp.desk.desk import FailureDesk
from streamapp.desk.desk_transactions import DeskTransactions
from streamapp.desk.letters import Letter
from streamapp.errors import BrokerError, StreamsError

from ..processes import run_streamapp, until
from ..topic_reader import read_settled, read_topic
from .conftest import Cluster
from .member import Member
from .test_retries import Desk


class Terminal:
    """``streamapp`` commands on the application of a desk."""

    def __init__(self, desk: Desk) -> None:
        cluster = desk.cluster
        self._environ = {
            **os.environ,
            "APP_ID": cluster.id,
            "BOOTSTRAP": cluster.bootstrap,
            "SOURCE": cluster.source,
            "SINK": cluster.sink,
            "DATADIR": str(cluster.folder / "terminal"),
            "WEB_PORT": "6066",
            "DEAD": desk.dead,
            "TIMES": "1",
            "TROUBLE": str(desk.trouble_file),
            "COLUMNS": "250",
        }

    def __call__(self, *arguments: str, code: int = 0, typed: str = "") -> str:
        head, *rest = arguments
        command = ["dlq", head] if head != "try-record" else ["try"]
        done = run_streamapp(
            *command, "tests.worker.retry_app", *rest, env=self._environ, typed=typed.encode()
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def desk(cluster: Cluster) -> Desk:
    return Desk(cluster)


def headers_of(cluster: Cluster, topic: str) -> list[dict[str, bytes]]:
    """The headers of all records that have some."""
    headers = [message.headers() for message in read_topic(cluster.bootstrap, topic)]
    return [dict(each) for each in headers if each]


def rows_in(cluster: Cluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(message.key(), message.value()) for message in read_settled(cluster.bootstrap, topic)]


def values_in(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [value for _, value in rows_in(cluster, topic)]


def test_dead_letters_are_listed_tried_edited_replayed_once_and_discarded(desk: Desk) -> None:
    desk.trouble("k7", "k8", "k9")
    desk.feed(150)
    worker = Member(
        desk.cluster, "a", app="retry_app", env={"TROUBLE": str(desk.trouble_file), "DEAD": desk.dead, "TIMES": "1"},
        processing_guarantee="exactly_once_v2",
    )  # fmt: skip
    until(lambda: len(desk.cluster.read(desk.dead)) == 9, 90, desk.cluster.story)
    run = Terminal(desk)

    listed = run("list")
    assert "look-up" in listed
    assert "ValueError" in listed
    assert " 9 " in listed
    status, body = worker.ask("/dlq")
    assert (status, body["letters"], body["groups"][0]["cause"]) == (200, 9, "ValueError")
    letters = [json.loads(line) for line in run("export", "--key", "k7").splitlines()]
    assert [letter["offset"] != "" and letter["state"] for letter in letters] == ["open"] * 3
    first = letters[0]["letter"]
    shown = run("show", first)
    assert "no k7" in shown
    assert "in look_up" in shown

    assert "no k7" in run("try", first, code=1)
    origin = [
        f"--topic={letters[0]['topic']}",
        f"--partition={letters[0]['partition']}",
        f"--offset={letters[0]['offset']}",
    ]
    assert "no k7" in run("try-record", *origin, code=1)
    debugged = run("try-record", *origin, "--debug", code=1, typed="p trouble['bad']\nq\n")
    assert "look_up()" in debugged
    assert "['k7', 'k8', 'k9']" in debugged

    status, trial = worker.ask(f"/dlq/{first}/try", "POST")
    assert (status, trial["stops"], trial["outputs"]) == (200, False, [])
    assert "ValueError: no k7" in trial["exception"]
    assert "Raised in look_up" in trial["exception"]
    assert trial["parked"][0]["records"] == 1

    desk.trouble("k8", "k9")
    assert f"{desk.cluster.sink}\tk7\t7" in run("try", first)
    assert run("replay", "--key", "k7", "--dry-run").count(" -> ") == 3
    status, trial = worker.ask(f"/dlq/{first}/try", "POST")
    assert (status, trial["outputs"]) == (200, [{"topic": desk.cluster.sink, "key": "k7", "value": "7"}])
    assert trial["exception"] is None
    run("edit", first, "--value", "7000")
    assert "3 letters replayed" in run("replay", "--key", "k7", "--rate", "100")
    until(lambda: len(desk.out().get("k7", ())) == 3, 60, desk.cluster.story)
    assert desk.out()["k7"] == [7000, 57, 107]
    assert "replayed" in run("replay", "--key", "k7", code=1)
    assert "3 letters replayed" in run("replay", "--key", "k7", "--force")
    until(lambda: desk.out()["k7"] == [7000, 57, 107] * 2, 60, desk.cluster.story)

    assert "3 letters discarded" in run("discard", "--key", "k8", "--why", "a drill")
    assert "a drill" in run("export", "--key", "k8")
    assert "no open dead letters" in run("list", "--key", "k8")
    assert "3 letters replayed" in run("replay", "--cause", "ValueError")  # k9's, which fail again
    until(lambda: len(desk.cluster.read(desk.dead)) == 12, 60, desk.cluster.story)
    again = [json.loads(line) for line in run("export", "--key", "k9").splitlines()]
    assert [letter["state"] for letter in again] == ["replayed"] * 3 + ["open"] * 3
    assert "__streamapp.replay.times=1" in again[-1]["letter"] or "replay" in run("show", again[-1]["letter"])
    replays = [
        each for each in headers_of(desk.cluster, desk.cluster.source) if "__streamapp.replay.letter" in each
    ]
    assert len(replays) == 9
    assert sum(each["__streamapp.replay.edited"] == b"true" for each in replays) == 2
    assert worker.worker.terminate() == 0


def test_a_second_desk_stops_the_first_and_nothing_is_replayed_twice(desk: Desk) -> None:
    """The first desk is between two transactions when another one begins."""
    cluster = desk.cluster
    for number in range(6):
        cluster.producer.produce(
            desk.dead,
            f"{number}",
            "k",
            headers=[("__streams.errors.topic", cluster.source), ("__streams.errors.partition", "0")],
        )
    cluster.producer.flush()
    config = StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap, dead_letter_queue_topic=desk.dead)
    seconds: list[int] = []

    def another(written: int) -> None:
        if written == 2:
            seconds.append(FailureDesk(config).replay(lambda letter: True))

    with pytest.raises(BrokerError, match="another desk began to write"):
        FailureDesk(config).replay(lambda letter: True, rate=2, progress=another)
    assert seconds == [4]
    assert values_in(cluster, cluster.source) == [b"%d" % number for number in range(6)]
    assert FailureDesk(config).replay(lambda letter: True) == 0


def test_a_letter_without_its_record_is_replayed_with_the_record_of_its_source(desk: Desk) -> None:
    """A record that failed after a wait in a join's buffer: the letter says where the record is."""
    cluster = desk.cluster
    cluster.producer.produce(cluster.source, b"7", b"k7", partition=0)
    for offset in (b"0", b"99"):
        where = {"topic": cluster.source.encode(), "partition": b"0", "offset": offset}
        headers = [(f"__streams.errors.{name}", value) for name, value in where.items()]
        cluster.producer.produce(desk.dead, None, None, headers=headers)
    cluster.producer.flush()
    config = StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap, dead_letter_queue_topic=desk.dead)
    with pytest.raises(
        StreamsError, match="letter 0-1 has no record.*Give the letter a record with edit, or discard"
    ):
        FailureDesk(config).replay(lambda letter: True)
    assert rows_in(cluster, cluster.source) == [(b"k7", b"7")]  # all or none: nobody wrote a tombstone
    assert FailureDesk(config).replay(lambda letter: letter.id == "0-0") == 1
    assert rows_in(cluster, cluster.source) == [(b"k7", b"7")] * 2
    FailureDesk(config).edit("0-1", b"k7", b"8")
    assert FailureDesk(config).replay(lambda letter: True) == 1
    assert rows_in(cluster, cluster.source)[-1] == (b"k7", b"8")


def test_a_topic_of_letters_that_is_created_anew_has_no_marks_of_the_old_one(desk: Desk) -> None:
    """The new letter has the id of an old one, whose edited record must not come back."""
    cluster = desk.cluster
    letters_of(desk, cluster.source, [b"old"]).edit("0-0", None, b"edited")
    assert letters_of(desk, cluster.source, []).replay(lambda letter: True) == 1
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=cluster.bootstrap))
    partitions = admin.partition_counts([desk.dead])[desk.dead]
    admin.delete_topics([desk.dead])
    admin.ensure_topics([(desk.dead, partitions, {})])
    anew = letters_of(desk, cluster.source, [b"new"])
    letter, marks = anew.letter("0-0")
    assert (letter.value, letter.edited, marks.state("0-0")) == (b"new", False, "open")
    assert anew.replay(lambda letter: True) == 1
    assert values_in(cluster, cluster.source) == [b"edited", b"new"]
    assert anew.replay(lambda letter: True) == 0


def letters_of(
    desk: Desk, source: str, values: list[bytes], partition: int = 0, **client: str
) -> FailureDesk:
    """A desk with a dead letter for each value, whose records came from a partition of ``source``."""
    cluster = desk.cluster
    headers = [("__streams.errors.topic", source), ("__streams.errors.partition", f"{partition}")]
    for value in values:
        cluster.producer.produce(desk.dead, value, "k", headers=headers)
    cluster.producer.flush()
    return FailureDesk(
        StreamsConfig(
            cluster.id,
            bootstrap_servers=cluster.bootstrap,
            dead_letter_queue_topic=desk.dead,
            client_properties=client,
        )
    )


def test_a_desk_waits_while_the_queue_of_its_client_is_full(desk: Desk) -> None:
    values = [b"%d" % number for number in range(50)]
    letters = letters_of(desk, desk.cluster.source, values, **{"queue.buffering.max.messages": "5"})
    assert letters.replay(lambda letter: True) == 50
    assert values_in(desk.cluster, desk.cluster.source) == values


def test_a_refused_record_ends_a_replay_with_the_id_of_its_letter(desk: Desk) -> None:
    cluster = desk.cluster
    small = f"{cluster.id}-small"
    cluster.create(small, partitions=1, config={"max.message.bytes": "1000"})
    values = [b"%d" % number for number in range(10)]
    values[7] = random.Random(7).randbytes(5_000)
    letters = letters_of(desk, small, values)
    match = f"letter 0-7: a record for {small} cannot be sent: .*key and value: 5,001 bytes.* Raise max.message.bytes"
    with pytest.raises(BrokerError, match=match):
        letters.replay(lambda letter: True)
    assert values_in(cluster, small) == values[:7]
    assert letters.discard(lambda letter: letter.id == "0-7", "too large") == 1
    assert letters.replay(lambda letter: True) == 2
    assert values_in(cluster, small) == values[:7] + values[8:]


def test_records_that_are_only_together_too_large_are_all_replayed_once(desk: Desk) -> None:
    cluster = desk.cluster
    small = f"{cluster.id}-small"
    cluster.create(small, partitions=1, config={"max.message.bytes": "1000"})
    values = [random.Random(number).randbytes(400) for number in range(40)]
    counts: list[int] = []
    assert letters_of(desk, small, values).replay(lambda letter: True, progress=counts.append) == 40
    assert values_in(cluster, small) == values
    assert counts == list(range(1, 41))


def test_a_refusal_comes_while_the_next_rows_are_sent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay ended with the error of the transaction, and did not try the letters one by one."""
    cluster = desk.cluster
    small = f"{cluster.id}-small"
    cluster.create(small, partitions=1, config={"max.message.bytes": "1000"})
    values = [random.Random(number).randbytes(400) for number in range(6)]
    produce, sent = DeskTransactions._produce, 0

    def slow(self: Any, row: Any, failed: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent == 5:
            time.sleep(1)  # the first four rows are refused together
        return produce(self, row, failed)

    monkeypatch.setattr(DeskTransactions, "_produce", slow)
    assert letters_of(desk, small, values).replay(lambda letter: True) == 6
    assert values_in(cluster, small) == values


def test_letters_of_a_partition_that_is_gone_are_refused_before_anything_is_written(desk: Desk) -> None:
    """A replay wrote the letters before, and a dry run promised all of them."""
    cluster, run = desk.cluster, Terminal(desk)
    small = f"{cluster.id}-small"
    cluster.create(small, partitions=1)
    letters_of(desk, small, [b"0"])
    letters_of(desk, small, [b"1"], partition=2)
    for options in ((), ("--dry-run",)):
        assert f"letters came from partition 2 of {small}" in run("replay", "--all", *options, code=1)
    assert values_in(cluster, small) == []
    assert f"{small}-0" in run("replay", "--letter", "0-0", "--dry-run")


def test_named_letters_that_are_not_there_or_not_open_are_said(desk: Desk) -> None:
    cluster = desk.cluster
    run = Terminal(desk)
    letters = letters_of(desk, cluster.source, [b"0", b"1"])
    for command in ("replay", "discard"):
        assert "there is no letter 0-99" in run(command, "--letter", "0-99", code=1)
        assert "there is no letter 0-99" in run(command, "--letter", "0-0", "--letter", "0-99", code=1)
        assert "'0-00' is not the id of a letter" in run(command, "--letter", "0-00", code=1)
    assert "there is no letter 0-99" in run("replay", "--letter", "0-99", "--dry-run", code=1)
    assert "there is no letter 0-99" in run("edit", "0-99", "--value", "x", code=1)
    assert "'0-00' is not the id of a letter" in run("edit", "0-00", "--value", "x", code=1)
    assert values_in(cluster, cluster.source) == []
    assert "0 letters replayed" in run("replay", "--cause", "KeyError")
    assert "0 letters discarded" in run("discard", "--cause", "KeyError")
    assert "1 letter replayed" in run("replay", "--letter", "0-0")
    assert "0-0 (replayed)" in run("replay", "--letter", "0-0", code=1)
    assert "0-0 (replayed)" in run("discard", "--letter", "0-0", code=1)
    with pytest.raises(StreamsError, match=r"not open: 0-0 \(replayed\)"):
        letters.replay(lambda letter: letter.id == "0-0", named=["0-0"])
    assert letters.discard(lambda letter: True, named=["0-0", "0-1"]) == 1


def test_a_replay_keeps_few_letters_in_memory(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay kept all of them."""
    alive, most, made = weakref.WeakSet[Letter](), 0, desk_module._letter

    def counted(message: Any) -> Letter:
        nonlocal most
        letter = made(message)
        alive.add(letter)
        most = max(most, len(alive))
        return letter

    monkeypatch.setattr(desk_module, "_letter", counted)
    values = [b"%d" % number for number in range(3_000)]
    letters = letters_of(desk, desk.cluster.source, values)
    counts: list[int] = []

    def another(written: int) -> None:
        if not counts:  # a letter that comes during the replay waits for the next one
            letters_of(desk, desk.cluster.source, [b"new"])
        counts.append(written)

    assert letters.replay(lambda letter: True, progress=another) == 3_000
    assert counts == [500, 1_000, 1_500, 2_000, 2_500, 3_000]
    assert values_in(desk.cluster, desk.cluster.source) == values
    assert most < 1_100  # two transactions
    assert letters.replay(lambda letter: True) == 1


def test_a_transaction_of_a_replay_has_few_bytes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "_BATCH_BYTES", 100_000)
    values = [random.Random(number).randbytes(30_000) for number in range(10)]
    counts: list[int] = []
    assert (
        letters_of(desk, desk.cluster.source, values).replay(lambda letter: True, progress=counts.append)
        == 10
    )
    assert counts == [3, 6, 9, 10]
    assert values_in(desk.cluster, desk.cluster.source) == values


def test_letters_that_are_deleted_during_a_replay_are_said(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other letters are replayed."""
    monkeypatch.setattr(desk_module, "_BATCH", 2)
    cluster = desk.cluster
    letters = letters_of(desk, cluster.source, [b"%d" % number for number in range(6)])
    checked = letters._check_targets

    def deleted(topics: set[str], only_group: bool) -> None:
        checked(topics, only_group)
        for future in cluster.admin.delete_records([TopicPartition(desk.dead, 0, 2)]).values():
            future.result()

    monkeypatch.setattr(letters, "_check_targets", deleted)
    with pytest.raises(
        StreamsError, match="has lost 2 letters before the replay, and the replay has written 4 letters"
    ):
        letters.replay(lambda letter: True)
    assert values_in(cluster, cluster.source) == [b"2", b"3", b"4", b"5"]
