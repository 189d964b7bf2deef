"""A source's account against a topic, and the gap sent again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from streamapp import AvroSerde, JsonSchemaSerde, ProtobufSerde
from streamapp.cli import main
from streamapp.producer import SyncReliableProducer, reconciliation
from streamapp.producer.session import BookmarkedSession
from streamapp.serdes import schema_registry

from ..processes import run_streamapp, until
from ..unit.registry.scripted import ScriptedRegistry
from .topics import Topics


class Order(msgspec.Struct):
    id: str


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedRegistry]:
    """A schema registry that the environment names."""
    server = ScriptedRegistry()
    monkeypatch.setattr(schema_registry, "_default", None)
    monkeypatch.setenv("STREAMAPP_SCHEMA_REGISTRY_URL", server.url)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def here(topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMAPP_BOOTSTRAP_SERVERS", topics.bootstrap)


def send(topics: Topics, topic: str, names: list[str], **more: Any) -> None:
    with SyncReliableProducer("source", bootstrap_servers=topics.bootstrap) as producer:
        for name in names:
            producer.send_soon(topic, key=name.encode(), value=b"{}", **more)


def moment(ms: int) -> str:
    return f"1970-01-01T00:00:0{ms / 1_000:.3f}"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["reconcile", *arguments])


def test_equal_accounts(topics: Topics) -> None:
    topic = topics.create()
    names = [f"o{number}" for number in range(100)]
    send(topics, topic, names)
    Path("ids").write_text("\n".join(reversed(names)))
    result = run(topic, "--source", "ids")
    assert result.exit_code == 0, result.output
    assert "| in the source | 100 |" in result.output
    assert "The topic and the source have the same records" in result.output


def test_the_gap_as_a_list_and_a_report(topics: Topics) -> None:
    topic = topics.create()
    send(topics, topic, ["a", "c", "c", "x"])
    with SyncReliableProducer("source", bootstrap_servers=topics.bootstrap) as producer:
        producer.send(topic, value=b"nameless")
    Path("ids").write_text("a\nb\nc\nd\n")
    result = run(topic, "--source", "ids", "--gap", "gap", "--report", "report.md")
    assert result.exit_code == 1
    assert Path("gap").read_text() == "b\t1\t0\nc\t1\t2\nd\t1\t0\nx\t0\t1\n"
    report = Path("report.md").read_text()
    for line in (
        "| in the source | 4 |",
        "| missing in the topic | 2 |",
        "| copies beyond those in the source | 1 |",
        "| unknown to the source | 1 |",
        "| without an id | 1 |",
    ):
        assert line in report


def test_the_gap_is_sent_again_and_no_second_time(topics: Topics) -> None:
    topic = topics.create()
    names = [f"o{number}" for number in range(50)]
    send(topics, topic, names[::2])
    Path("source").write_text(
        "".join(
            json.dumps({"id": name, "key": name, "value": {"n": name}, "timestamp": 500}) + "\n"
            for name in names
        )
    )
    result = run(topic, "--source", "source", "--republish", "1000")
    assert result.exit_code == 0, result.output
    assert "| republished | 25 |" in result.output
    again = run(topic, "--source", "source", "--republish", "1000")
    assert again.exit_code == 0, again.output
    assert "| republished | 0 |" in again.output
    keys = [key for rows in topics.read(topic).values() for key, _ in rows]
    assert sorted(keys) == sorted(name.encode() for name in names)


def source_of(names: list[str]) -> str:
    """A file with the records of a source, and its path."""
    rows = ({"id": name, "key": name, "value": {"n": name}, "timestamp": 500} for name in names)
    Path("source").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "source"


@pytest.mark.parametrize("identity", ["header:id", "value:n", "key"])
def test_the_next_run_finds_what_was_sent_again_by_its_id(topics: Topics, identity: str) -> None:
    topic = topics.create()
    arguments = (topic, "--source", source_of(["a", "b"]), "--id", identity, "--republish", "1000")
    first = run(*arguments)
    assert first.exit_code == 0, first.output
    assert "| republished | 2 |" in first.output
    again = run(*arguments)
    assert again.exit_code == 0, again.output
    assert "| republished | 0 |" in again.output
    assert "| without an id | 0 |" in again.output


@pytest.mark.parametrize(
    ("identity", "record", "message"),
    [
        ("key", {"key": "k7"}, "line 2: the record has the id 'k7' in its key, but the line has the id 'o7'"),
        ("key", {}, "line 2: the record has no id in its key"),
        ("value:n", {"key": "o7", "value": {"n": "7"}}, "has the id '7' in its value:n"),
        ("header:id", {"timestamp": "500"}, "line 2: \"timestamp\" is '500', but it is a whole number of ms"),
    ],
)
def test_a_line_that_the_next_run_would_miss_again_is_refused_before_anything_is_sent(
    topics: Topics, identity: str, record: dict[str, Any], message: str
) -> None:
    topic = topics.create()
    good = {"id": "o1", "key": "o1", "value": {"n": "o1"}}
    Path("source").write_text(json.dumps(good) + "\n" + json.dumps({"id": "o7", **record}) + "\n")
    result = run(topic, "--source", "source", "--id", identity, "--republish", "1")
    assert result.exit_code == 1
    assert message in result.output
    assert not any(topics.read(topic).values())


@pytest.mark.parametrize("step", ["producer-sent", "producer-bookmarked", "producer-committed"])
def test_a_kill_while_the_gap_is_sent_doubles_nothing(topics: Topics, tmp_path: Path, step: str) -> None:
    topic = topics.create()
    names = [f"o{number}" for number in range(40)]
    send(topics, topic, names[::2])
    arguments = ["reconcile", topic, "--source", source_of(names), "--republish", "10"]
    environ = {**os.environ, "STREAMAPP_FAILPOINT": f"{step}:kill:2", "TMPDIR": str(tmp_path)}
    killed = run_streamapp(*arguments, env=environ)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = run(*arguments[1:])
    assert again.exit_code == 0, again.output
    sent = 20 if step == "producer-committed" else 10
    assert f"| republished | {20 - sent:,} |" in again.output
    keys = [key for rows in topics.read(topic).values() for key, _ in rows]
    assert sorted(keys) == sorted(name.encode() for name in names)


def open_transaction(topics: Topics, topic: str, key: bytes) -> Producer:
    """Another producer, whose transaction has written a record and is open."""
    other = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": f"{topic}-other"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(topic, key=key, value=b"{}")
    other.flush()
    return other


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_temporary_files_and_no_transaction(
    topics: Topics, number: signal.Signals
) -> None:
    """SIGTERM left the folder with all ids. Ctrl-C ended with 1, as accounts that differ do."""
    topic = topics.create(1)
    other = open_transaction(topics, topic, b"x")
    Path("tmp").mkdir()
    code = (
        # as in a terminal; nohup, for example, ignores SIGHUP
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "from streamapp.cli import main; main()"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", code, "reconcile", topic, "--source", source_of(["o1"]), "--republish", "10"],
        env={**os.environ, "TMPDIR": str(Path("tmp").resolve())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        until(lambda: any(Path("tmp").glob("*/ledger/CURRENT")), 60, lambda: "no comparison has begun")
        command.send_signal(number)
        _, told = command.communicate(timeout=60)
        assert (command.returncode, b"Traceback" in told) == (-number, False)
        assert list(Path("tmp").iterdir()) == []
    finally:
        command.kill()
        other.abort_transaction(30)


def test_files_that_cannot_be_written_are_refused_before_the_comparison(topics: Topics) -> None:
    """A missing folder ended the command with a traceback after it had read the topic. A gap in the file of the source
    replaced the source."""
    topic = topics.create(1)
    source = source_of(["o1"])
    for option in ("--gap", "--report"):
        refused = run(topic, "--source", source, option, "none/file")
        assert refused.exit_code == 2
        assert f"'{option}': there is no folder none: create it first" in refused.output
        refused = run(topic, "--source", source, option, f"../{Path.cwd().name}/{source}", "--republish", "1")
        assert refused.exit_code == 1
        assert f"--source and {option} name one file" in refused.output
    assert (
        "--gap and --report name one file"
        in run(topic, "--source", source, "--gap", "a", "--report", "a").output
    )
    full = run(topic, "--source", source, "--gap", "/dev/full")
    assert (full.exit_code, "/dev/full cannot be written: No space left on device" in full.output) == (
        1,
        True,
    )
    assert json.loads(Path(source).read_text())["id"] == "o1"
    assert not any(topics.read(topic).values())


@pytest.mark.parametrize("ends", [False, True])
def test_records_behind_an_open_transaction_are_not_missing(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """They counted as missing, and a second copy of each was sent, with exit code 0."""
    topic = topics.create(1)
    other = open_transaction(topics, topic, b"o0")
    send(topics, topic, ["o1", "o2"])
    Path("source").write_text("".join(f'{{"id": "o{n}", "key": "o{n}", "value": {{}}}}\n' for n in range(3)))
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if ends and len(looks) == 1:
            other.commit_transaction(30)

    monkeypatch.setattr(reconciliation, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    if not ends:
        monkeypatch.setattr(reconciliation, "OPEN_SECONDS", 1.0)
    result = run(topic, "--source", "source", "--republish", "1000")
    assert looks
    if ends:
        assert result.exit_code == 0, result.output
        assert "| missing in the topic | 0 |" in result.output
        assert len(topics.values(topic)) == 3
    else:
        assert result.exit_code == 1
        assert f"a transaction stays open in {topic}-0" in result.output
        other.abort_transaction(30)
        assert len(topics.values(topic)) == 2


def test_the_encoding_of_a_source(topics: Topics) -> None:
    """The first id had the mark in front, and was missing; other encodings ended with a traceback."""
    topic = topics.create(1)
    send(topics, topic, ["o1", "o2"])
    Path("ids").write_bytes(b"\xef\xbb\xbfo1\no2\n")
    assert run(topic, "--source", "ids").exit_code == 0
    Path("ids").write_bytes(b"o1\no2\n\xe9\n")
    result = run(topic, "--source", "ids")
    assert result.exit_code == 1
    assert "ids is not UTF-8 after line" in result.output
    Path("ids").write_text('{"id": null}\n')
    assert 'is not a JSON object with "id"' in run(topic, "--source", "ids").output


def test_no_more_records_go_in_a_second_than_asked(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    now, moments = 1_000.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    commit = BookmarkedSession.send

    def sending(self: Any, records: Any, *rest: Any) -> Any:
        moments.append((now, len(records)))
        return commit(self, records, *rest)

    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep)
    monkeypatch.setattr("streamapp.producer.reconciliation.time", clock)
    monkeypatch.setattr(BookmarkedSession, "send", sending)
    result = run(topics.create(), "--source", source_of([f"o{n}" for n in range(45)]), "--republish", "10")
    assert result.exit_code == 0, result.output
    assert moments == [(1_000 + second, count) for second, count in enumerate((10, 10, 10, 10, 5))]


def test_counts_by_window_and_key(topics: Topics) -> None:
    topic = topics.create()
    send(topics, topic, ["a", "a", "b"], timestamp=1_000)
    send(topics, topic, ["a"], timestamp=2_500)
    Path("counts").write_text("0\ta\t2\n0\tb\t2\n2000\ta\t1\n")
    result = run(topic, "--source", "counts", "--window", "2000", "--gap", "gap")
    assert result.exit_code == 1
    assert Path("gap").read_text() == "0\tb\t2\t1\n"
    assert "| missing in the topic | 1 |" in result.output


def test_only_records_of_a_time_count(topics: Topics) -> None:
    topic = topics.create()
    for name, at in (("early", 900), ("a", 1_000), ("b", 1_999), ("late", 2_000)):
        send(topics, topic, [name], timestamp=at)
    Path("ids").write_text("a\nb\n")
    result = run(topic, "--source", "ids", "--from", moment(1000), "--to", moment(2000))
    assert result.exit_code == 0, result.output


def test_lines_of_another_time_are_left_out_as_their_records_are(topics: Topics) -> None:
    topic = topics.create()
    send(topics, topic, ["early"], timestamp=900)
    rows = [
        {"id": name, "key": name, "value": {}, "timestamp": at}
        for name, at in (("early", 900), ("a", 1_000), ("b", 1_999), ("under-way", 2_000))
    ]
    Path("source").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run(
        topic, "--source", "source", "--from", moment(1000), "--to", moment(2000), "--republish", "100"
    )
    assert result.exit_code == 0, result.output
    assert "| in the source | 2 |" in result.output
    assert "| republished | 2 |" in result.output
    keys = [key for rows in topics.read(topic).values() for key, _ in rows]
    assert sorted(keys) == [b"a", b"b", b"early"]


def test_windows_of_another_time_are_left_out_of_the_source(topics: Topics) -> None:
    topic = topics.create()
    for at in (1_000, 2_500, 5_000):
        send(topics, topic, ["a"], timestamp=at)
    Path("counts").write_text("0\ta\t9\n2000\ta\t1\n4000\ta\t9\n")
    result = run(
        topic, "--source", "counts", "--window", "2000", "--from", moment(2000), "--to", moment(4000)
    )
    assert result.exit_code == 0, result.output


def test_ids_in_headers_and_values(topics: Topics) -> None:
    topic = topics.create()
    with SyncReliableProducer("source", bootstrap_servers=topics.bootstrap) as producer:
        producer.send(topic, value=b'{"order": 7}', headers=(("id", b"h7"),))
    Path("ids").write_text("7\n")
    assert run(topic, "--source", "ids", "--id", "value:order").exit_code == 0
    Path("ids").write_text("h7\n")
    assert run(topic, "--source", "ids", "--id", "header:id").exit_code == 0


@pytest.mark.parametrize("format", ["avro", "json"])
def test_ids_in_values_with_a_schema(topics: Topics, format: str, registry: ScriptedRegistry) -> None:
    """Each of these records counted as missing, and --republish would have sent all of them again, as text."""
    topic = topics.create()
    serde: Any = AvroSerde(type=Order) if format == "avro" else JsonSchemaSerde(type=Order)
    with SyncReliableProducer("source", value_serde=serde, bootstrap_servers=topics.bootstrap) as producer:
        for name in ("a", "c", "c"):
            producer.send(topic, key=b"k", value=Order(name))
    with SyncReliableProducer("source", bootstrap_servers=topics.bootstrap) as poison:
        poison.send(topic, value=b"\0\0\0\0\x63what")
    Path("ids").write_text("a\nb\nc\n")
    result = run(topic, "--source", "ids", "--id", "value:id", "--gap", "gap")
    assert Path("gap").read_text() == "b\t1\t0\nc\t1\t2\n", result.output
    assert "| without an id | 1 |" in result.output
    Path("source").write_text('{"id": "b", "value": {"id": "b"}}\n')
    refused = run(topic, "--source", "source", "--id", "value:id", "--republish", "10")
    assert refused.exit_code == 1
    assert "have the id of a schema. Nothing is sent" in refused.output
    assert sum(map(len, topics.read(topic).values())) == 4


def test_an_id_in_protobuf_or_without_a_registry_is_refused(
    topics: Topics, registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("ids").write_text("a\n")
    for serde, message in (
        (ProtobufSerde(type=Order), "a value is Protobuf (schema id"),
        (AvroSerde(type=Order), ""),
    ):
        topic = topics.create()
        with SyncReliableProducer(
            "source", value_serde=serde, bootstrap_servers=topics.bootstrap
        ) as producer:
            producer.send(topic, value=Order("a"))
        assert message in run(topic, "--source", "ids", "--id", "value:id").output
    monkeypatch.setattr(schema_registry, "_default", None)
    monkeypatch.delenv("STREAMAPP_SCHEMA_REGISTRY_URL")
    result = run(topic, "--source", "ids", "--id", "value:id")
    assert result.exit_code == 1
    assert "name its registry in STREAMAPP_SCHEMA_REGISTRY_URL" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--id", "body"), "an id is key"),
        (("--window", "1000"), "line 1"),
        (("--window", "1000", "--republish", "1"), "needs ids"),
        (("--republish", "1"), 'a JSON object with "id"'),
        (("--window", "1000", "--from", moment(500)), "500 is within a window of 1000 ms"),
    ],
)
def test_what_cannot_be_right_is_refused(topics: Topics, arguments: tuple[str, ...], message: str) -> None:
    topic = topics.create()
    Path("ids").write_text("a\n")
    result = run(topic, "--source", "ids", *arguments)
    assert result.exit_code == 1
    assert message in result.output


def test_a_line_without_a_time_is_refused_if_times_are_chosen(topics: Topics) -> None:
    Path("source").write_text('{"id": "a"}\n')
    result = run(topics.create(), "--source", "source", "--to", moment(5000))
    assert result.exit_code == 1
    assert 'source, line 1: \'{"id": "a"}\' needs "timestamp"' in result.output


def test_objects_do_not_go_with_windows(topics: Topics) -> None:
    Path("source").write_text('{"id": "a", "timestamp": 5}\n')
    result = run(topics.create(), "--source", "source", "--window", "1000")
    assert result.exit_code == 1
    assert "is not a window's start in ms" in result.output


def test_a_topic_that_is_not_there(topics: Topics) -> None:
    Path("ids").write_text("a\n")
    assert "there is no topic nowhere" in run("nowhere", "--source", "ids").output
