"""``streamapp try`` and ``streamapp dlq try``: the exception, and the results, without a word that is not true."""

from __future__ import annotations

import io

import pytest

from streamapp import StreamsBuilder, StreamsConfig, StringSerde
from streamapp.cli.trial import show_trial
from streamapp.desk.trial import runs_of, tried, try_record
from streamapp.records import OutputRecord

TEXT = StringSerde()
CONFIG = StreamsConfig("app", dead_letter_queue_topic="dead")


def test_a_trial_that_fails_names_no_other_record_and_sends_no_letter(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    stream.map_values(int, on_error="dead_letter", name="number").foreach(print)
    topology = builder.build()
    with pytest.raises(SystemExit):
        show_trial(lambda raises: try_record(topology, CONFIG, "in", b"k", b"?", 5, raises=raises), False)
    printed = capsys.readouterr()
    assert printed.err.startswith("failed: number (task 0_0): the record failed: ValueError")
    assert "set processing_exception_handler" not in printed.err  # the operator has an answer already
    assert "ValueError" in printed.err
    assert (
        "To run it again" not in printed.err
    )  # the record has the offset 0 in the test driver, not in Kafka
    assert printed.out == "dead\tk\t?\nnumber drops 1: dead_letter\n"
    assert caplog.messages == []  # "sent to dead" would not be true


@pytest.mark.parametrize("end", ["c", "q", ""])
def test_a_debugger_opens_where_the_function_raises(
    end: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(flight: str) -> str:
        gate = f"gate of {flight}"
        raise ValueError(f"no {gate}")

    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    stream.map_values(look_up, on_error="dead_letter").to("out", value_serde=TEXT)
    topology = builder.build()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"p gate.upper()\n{end}\n" if end else "p gate.upper()\n"))
    with pytest.raises(SystemExit) as exited:
        show_trial(lambda raises: try_record(topology, CONFIG, "in", b"k", b"UA1", 5, raises=raises), True)
    printed = capsys.readouterr()
    assert exited.value.code == 1
    assert "-> raise ValueError" in printed.out
    assert "'GATE OF UA1'" in printed.out
    assert "ValueError: no gate of UA1" in printed.err
    assert printed.out.endswith("dead\tk\tUA1\nKSTREAM-MAPVALUES-0000000001 drops 1: dead_letter\n")
    assert printed.out.count("(Pdb)") == 2  # opens once, not for the answer of on_error


def test_a_record_that_stops_a_worker_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).map_values(int, name="number").foreach(print)
    topology, config = builder.build(), StreamsConfig("app")
    with pytest.raises(SystemExit) as exited:
        show_trial(lambda raises: try_record(topology, config, "in", b"k", b"?", 5, raises=raises), False)
    printed = capsys.readouterr()
    assert (exited.value.code, printed.out) == (1, "a worker stops at the record\n")
    assert printed.err.startswith("failed: number (task 0_0)")


def test_no_debugger_opens_for_a_record_that_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StreamsBuilder(CONFIG)
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out", key_serde=TEXT, value_serde=TEXT)
    topology = builder.build()
    monkeypatch.setattr("sys.stdin", io.StringIO())
    show_trial(lambda raises: try_record(topology, CONFIG, "in", b"k", b"UA1", 5, raises=raises), True)
    assert capsys.readouterr() == ("out\tk\tUA1\n", "")


def test_a_trial_waits_for_no_other_input() -> None:
    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT).map_values(int, name="number")
    shown = stream.map(lambda key, number: (key, str(number)))
    shown.repartition(key_serde=TEXT, value_serde=TEXT).to("out", key_serde=TEXT, value_serde=TEXT)
    builder.stream("other", key_serde=TEXT, value_serde=TEXT).foreach(print)
    topology, config = builder.build(), CONFIG.replace(max_task_idle_ms=1_000)
    assert [each.value for each in tried(runs_of(topology, config, record(b"007"))).outputs] == [b"7"]
    assert "ValueError" in (tried(runs_of(topology, config, record(b"?"))).exception or "")


def record(value: bytes) -> OutputRecord:
    return OutputRecord("in", b"k", value, 5)
