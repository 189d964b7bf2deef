"""A dead letter, its replay and its marks, as data."""

from __future__ import annotations

import pytest

from streamapp import StreamsBuilder, StreamsConfig, StreamsError, StringSerde, TopologyTestDriver
from streamapp.desk.desk import FailureDesk
from streamapp.desk.filters import LetterFilter
from streamapp.desk.letters import Letter, grouped
from streamapp.desk.marks import Marks
from streamapp.desk.trial import try_record
from streamapp.engine.judging import ONLY_GROUP, REPLAY
from streamapp.topology import Topology

TEXT = StringSerde()
CONFIG = StreamsConfig("app", dead_letter_queue_topic="dead", application_version="1.4")


def loud(value: str) -> str:
    if value == "bad":
        raise ValueError("no bad words")
    return value.upper()


def topology() -> Topology:
    builder = StreamsBuilder(CONFIG)
    words = builder.stream("words", key_serde=TEXT, value_serde=TEXT)
    words.map_values(loud, name="loud", on_error="dead_letter").to("out", value_serde=TEXT)
    return builder.build()


def letter(value: bytes = b"bad", offset: int = 0) -> Letter:
    with TopologyTestDriver(topology()) as driver:
        driver.pipe_raw("words", b"k", value, 500, (("trace", b"1"),))
        (dead,) = driver.produced["dead"]
    return Letter(0, offset, 900, dead.key, dead.value, dead.headers)


def test_a_letter_says_all_there_is_to_say() -> None:
    dead = letter()
    names = (
        "topic",
        "partition",
        "offset",
        "timestamp",
        "operator",
        "task",
        "application",
        "version",
        "attempt",
    )
    assert [dead.said(name) for name in names] == [
        "words", "0", "0", "500", "loud", "0_0", "app", "1.4", "1",
    ]  # fmt: skip
    assert (dead.cause, dead.said("message")) == ("ValueError", "no bad words")
    assert "in loud" in dead.said("stacktrace")
    assert dead.own_headers == (("trace", b"1"),)


def test_a_replayed_record_is_the_record_that_failed_with_its_provenance() -> None:
    record = letter(offset=17).replayed("dead")
    assert (record.topic, record.partition, record.key, record.value, record.timestamp) == (
        "words", 0, b"k", b"bad", 500,
    )  # fmt: skip
    assert record.headers == (
        ("trace", b"1"),
        (f"{REPLAY}letter", b"dead-0 at 17"),
        (f"{REPLAY}operator", b"loud"),
        (f"{REPLAY}edited", b"false"),
        (f"{REPLAY}times", b"1"),
    )


def test_a_record_that_fails_again_counts_its_replays() -> None:
    again = letter(offset=17).replayed("dead")
    with TopologyTestDriver(topology()) as driver:
        driver.pipe_raw("words", again.key, again.value, 500, again.headers)
        (dead,) = driver.produced["dead"]
    second = Letter(0, 18, 900, dead.key, dead.value, dead.headers).replayed("dead")
    assert dict(second.headers)[f"{REPLAY}times"] == b"2"
    assert dict(second.headers)[f"{REPLAY}letter"] == b"dead-0 at 18"
    assert [name for name, _ in second.headers].count(f"{REPLAY}times") == 1


@pytest.mark.parametrize("topic", [None, b"null"])  # earlier versions wrote the text
def test_a_letter_from_nowhere_is_refused(topic: bytes | None) -> None:
    letter = Letter(0, 1, 5, b"k", b"v", (("__streams.errors.topic", topic),))
    assert letter.origin == "no input record"
    with pytest.raises(StreamsError, match="names no source topic, so it cannot be replayed"):
        letter.replayed("dead")


def test_letters_are_grouped_by_operator_and_cause() -> None:
    letters = [letter(offset=1), letter(offset=2), Letter(0, 3, 100, b"k", b"v", ())]
    first, second = grouped(letters)
    assert (first.operator, first.cause, first.count, first.example) == ("loud", "ValueError", 2, "0-2")
    assert (second.operator, second.cause, second.first) == ("unknown", "unknown", 100)


def test_marks_are_read_back_as_they_were_made() -> None:
    made, read = Marks(), Marks()
    rows = [
        ("0-1", made.edited("0-1", b"k", None, 5)),
        ("0-1", made.marked("0-1", "replayed", 6)),
        ("0-2", made.marked("0-2", "discarded", 7, "a test")),
    ]
    for id, row in rows:
        read.apply(id.encode(), row)
    assert read == made
    assert [read.state(id) for id in ("0-1", "0-2", "0-3")] == ["replayed", "discarded", "open"]
    assert read.edit_of("0-1") == (b"k", None)
    assert read.edit_of("0-2") is None
    with pytest.raises(StreamsError, match="not a mark"):
        read.apply(b"0-4", b"?")


def test_a_trial_shows_what_would_come_out_and_what_would_fail() -> None:
    good = try_record(topology(), CONFIG, "words", b"k", b"fine", 500)
    assert [(record.topic, record.value) for record in good.outputs] == [("out", b"FINE")]
    bad = try_record(topology(), CONFIG, "words", b"k", b"bad", 500)
    assert [record.topic for record in bad.outputs] == ["dead"]
    assert bad.drops == {("loud", "dead_letter"): 1}
    with pytest.raises(StreamsError, match="no bad words"):
        try_record(topology(), CONFIG, "words", b"k", b"bad", 500, raises=True)


@pytest.mark.parametrize(
    "id", ["", "1", "-", "0-", "²-1", "0--1", "0-" + "9" * 5_000, "9" * 12 + "-0", "0-1\n"]
)
def test_an_id_that_no_letter_can_have_is_refused_before_brokers_are_asked(id: str) -> None:
    desk = FailureDesk(StreamsConfig("app", bootstrap_servers="127.0.0.1:9", dead_letter_queue_topic="dead"))
    with pytest.raises(StreamsError, match="is not the id of a letter"):
        desk.letter(id)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("__streamapp.replay.times", b"abc"),
        ("__streamapp.errors.timestamp", b"abc"),
        ("__streamapp.errors.timestamp", b"9" * 30),
        ("__streams.errors.partition", b"9" * 30),
        ("__streams.errors.partition", "\u00b2".encode()),
    ],
)
def test_numbers_that_are_none_do_not_keep_a_letter_from_its_replay(name: str, value: bytes) -> None:
    """Another producer may write to the dead-letter topic. Such a letter ended the replay of all letters."""
    headers = (("__streams.errors.topic", b"words"), (name, value))
    record = Letter(0, 17, 900, b"k", b"v", headers).replayed("dead")
    assert (record.topic, record.timestamp, record.partition) == ("words", 900, None)
    assert dict(record.headers)["__streamapp.replay.times"] == b"1"


@pytest.mark.parametrize("time", [-1, 0, 500])
def test_a_replay_gives_the_record_its_own_timestamp(time: int) -> None:
    """A record without a timestamp (-1) got that of its letter. This may be the time of the broker or of the clock."""
    headers = (("__streams.errors.topic", b"words"), ("__streamapp.errors.timestamp", b"%d" % time))
    assert Letter(0, 17, 900, b"k", b"v", headers).replayed("dead").timestamp == time


@pytest.mark.parametrize("partition", [b"", b"x", b"9" * 30])
def test_a_letter_without_record_and_place_is_refused(partition: bytes) -> None:
    headers = (
        ("__streams.errors.topic", b"words"),
        ("__streams.errors.partition", partition),
        ("__streams.errors.offset", b"5"),
    )
    with pytest.raises(
        StreamsError, match="letter 0-17 has no record, .* no place of a record. Give the letter"
    ):
        FailureDesk(CONFIG).whole(Letter(0, 17, 900, None, None, headers))


def test_a_letter_of_a_letter_gives_back_the_first_letter() -> None:
    """A second application reads the dead letters of a first one. A replay took all error headers off."""
    first = letter()
    builder = StreamsBuilder(StreamsConfig("second", dead_letter_queue_topic="dead-2"))
    builder.stream("dead", key_serde=TEXT, value_serde=TEXT).map_values(loud, on_error="dead_letter").to(
        "seen", value_serde=TEXT
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw("dead", b"k", b"bad", 500, first.headers)
        (again,) = driver.produced["dead-2"]
    second = Letter(0, 3, 900, again.key, again.value, again.headers)
    assert (second.said("topic"), second.said("application")) == ("dead", "second")
    record = second.replayed("dead-2")
    back = Letter(0, 18, 901, record.key, record.value, record.headers)
    assert (back.said("topic"), back.said("application"), back.said("message")) == (
        "words",
        "app",
        "no bad words",
    )
    assert dict(back.own_headers)["trace"] == b"1"


@pytest.mark.parametrize(
    ("task", "group"),
    [
        (b"0_3", "shop"),
        (b"-1_0", "shop"),  # a global table
        (b"", "shop"),  # an agent
        (b"shop-mail_3", "shop-mail"),
        (b"big_mail_12", "big_mail"),
    ],
)
def test_a_letter_names_the_group_of_its_reader(task: bytes, group: str) -> None:
    said = (("__streamapp.errors.application", b"shop"), ("__streamapp.errors.task", task))
    dead = Letter(0, 1, 5, b"k", b"v", said)
    assert dead.group == group
    assert LetterFilter(group=group).matches(dead)
    assert not LetterFilter(group="shop-bills").matches(dead)
    assert LetterFilter(application="shop").matches(dead)
    assert not LetterFilter(application="bank").matches(dead)


def test_letters_of_several_applications_are_counted_apart() -> None:
    def of(application: bytes, task: bytes) -> Letter:
        return Letter(
            0,
            1,
            5,
            None,
            None,
            (("__streamapp.errors.application", application), ("__streamapp.errors.task", task)),
        )

    letters = [of(b"shop", b"0_1"), of(b"shop", b"shop-mail_1"), of(b"bank", b"0_1"), of(b"bank", b"0_2")]
    assert [(group.group, group.count) for group in grouped(letters)] == [
        ("bank", 2),
        ("shop", 1),
        ("shop-mail", 1),
    ]


def test_a_replay_for_one_group_names_topic_and_group() -> None:
    record = letter().replayed("dead", only_group=True)
    assert dict(record.headers)[ONLY_GROUP] == b"words app"
    foreign = Letter(0, 1, 5, None, None, (("__streams.errors.topic", b"words"),))
    with pytest.raises(StreamsError, match="letter 0-1 names no consumer group"):
        foreign.replayed("dead", only_group=True)
