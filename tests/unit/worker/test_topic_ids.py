"""The ids of topics, told by a scripted admin client."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp._base.names import NO_TOPIC_ID
from streamapp.engine.metadata import (
    BACKFILL,
    METADATA_LIMIT,
    TOPIC_ID,
    RememberedTimes,
    decode_metadata,
    encode_metadata,
    marks_of,
    topic_ids_in,
)
from streamapp.engine.topic_notes import note_of_topics, noted_as_own, noted_topics
from streamapp.errors import TopologyError
from streamapp.records import TopicPartition
from streamapp.runners import topic_ids
from streamapp.runners.earlier_topics import check_not_anew, committed_in_others, ids_of
from streamapp.runners.topic_ids import LostTopic, TopicIds
from streamapp.runners.worker.topics import Topics


class Admin:
    """Answers each question for topics with the same id."""

    def __init__(self, topic_id: str) -> None:
        self.asked: list[str] = []
        self._answer: Future[Any] = Future()
        self._answer.set_result(SimpleNamespace(topic_id=topic_id, partitions=[]))

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        self.asked += topics.topic_names
        return dict.fromkeys(topics.topic_names, self._answer)


def test_a_topic_that_is_created_anew_before_the_first_look_is_noticed() -> None:
    admin: Any = Admin("B")
    ids = TopicIds(admin, ["orders"], {"orders": "A"})
    ids._asked_at = -1e9
    assert [ids.lost(), ids.lost()] == [None, LostTopic("orders", anew=True)]


def metadata(*topic_ids: str) -> str:
    return encode_metadata(5, {f"{TOPIC_ID}{each}": 0 for each in topic_ids})


def test_the_upgrade_of_brokers_without_ids_makes_no_new_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_ids, "_ASK_SECONDS", 0.0)
    ids = TopicIds(Admin(NO_TOPIC_ID), ["orders"])  # type: ignore[arg-type]
    found = []
    for topic_id in (NO_TOPIC_ID, "A", NO_TOPIC_ID, "A", "B", "B"):
        ids._admin = Admin(topic_id)  # type: ignore[assignment]
        found.append(ids.lost())
    assert found == [None] * 5 + [LostTopic("orders", anew=True)]


def test_a_topic_that_may_go_is_lost_only_if_it_is_created_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_ids, "_ASK_SECONDS", 0.0)
    ids = TopicIds(Admin("A"), ["orders"], {"orders": "A"})  # type: ignore[arg-type]
    ids.watch_only(["orders"], ["orders"])
    gone: Any = Admin("A")
    gone._answer = Future()
    gone._answer.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    found = []
    for admin in (Admin("A"), gone, gone, gone, Admin("B"), Admin("B")):
        ids._admin = admin
        found.append(ids.lost())
    assert found == [None] * 5 + [LostTopic("orders", anew=True)]
    ids.watch_only([])
    ids.watch_only(["orders"])
    assert [ids.lost(), ids.lost(), ids.lost()] == [None] * 3  # a topic of the same name that comes later


def test_a_broker_without_ids_names_none() -> None:
    admin: Any = Admin(NO_TOPIC_ID)
    assert ids_of(admin, ["orders"]) == {}
    committed = {TopicPartition("orders", 0): (7, metadata("A"))}
    assert committed_in_others(admin, committed) == set()
    admin = Admin("A")
    committed = {TopicPartition("orders", 0): (7, metadata(NO_TOPIC_ID))}
    assert committed_in_others(admin, committed) == set()


def test_the_error_names_the_way_out_for_offsets_of_another_cluster() -> None:
    admin: Any = Admin("B")
    with pytest.raises(TopologyError, match="from another cluster.*--shift-by 0 --keep-tables --execute"):
        check_not_anew("app", admin, {TopicPartition("orders", 0): (7, metadata("A"))})


def test_the_check_tells_the_ids_for_which_it_has_asked() -> None:
    admin: Any = Admin("A")
    committed = {TopicPartition("orders", 0): (7, metadata("A")), TopicPartition("old", 0): (7, "")}
    assert check_not_anew("app", admin, committed) == {"orders": "A"}


def test_a_start_asks_once_for_each_id() -> None:
    """With ids in its offsets, a worker asked twice for those of its inputs."""
    admin: Any = Admin("A")
    ids = check_not_anew("app", admin, {TopicPartition("orders", 0): (7, metadata("A"))})
    found = Topics({}, {}, ids).ids_of(admin, {"orders", "app-counts-changelog"})
    assert found == {"orders": "A", "app-counts-changelog": "A"}
    assert admin.asked == ["orders", "app-counts-changelog"]


def test_offsets_are_compared_with_the_ids_in_their_metadata() -> None:
    texts = (metadata("A"), metadata("B"), metadata("A", "B"), metadata(), "", f"{BACKFILL}{{}}")
    committed = {TopicPartition("orders", number): (7, text) for number, text in enumerate(texts)}
    admin: Any = Admin("B")
    assert committed_in_others(admin, committed) == {TopicPartition("orders", 0)}


class Ids:
    """Answers each question for topics with the ids of a dictionary."""

    def __init__(self, **ids: str) -> None:
        self._ids = ids

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {name: Future() for name in topics.topic_names}
        for name, answer in answers.items():
            answer.set_result(SimpleNamespace(topic_id=self._ids[name], partitions=[]))
        return answers


def admin_of(**ids: str) -> Any:
    return Ids(**ids)


def test_an_offset_of_kafka_streams_may_name_only_other_inputs_of_its_task() -> None:
    """Workers refused to start after Java, if they had not committed the input themselves before Java."""
    admin: Any = Ids(orders="A", answers="B")
    committed = {
        TopicPartition("orders", 0): (7, metadata("A")),
        TopicPartition("answers", 0): (7, metadata("A")),
    }
    assert check_not_anew("app", admin, committed) == {"orders": "A", "answers": "B"}
    committed[TopicPartition("answers", 0)] = (7, metadata("A", "an earlier topic"))
    assert committed_in_others(admin, committed) == {TopicPartition("answers", 0)}


def test_a_task_names_the_topic_and_remembers_no_earlier_one() -> None:
    times = RememberedTimes()
    assert times.recall(encode_metadata(5, {f"{TOPIC_ID}A": 0})) == 5
    assert topic_ids_in(times.encode(6, "B")) == {"B"}
    assert topic_ids_in(times.encode(6, None)) == set()


def test_metadata_without_room_has_a_short_id() -> None:
    """Brokers refuse longer metadata, so the worker could not commit any more."""
    times, id = RememberedTimes(), "B" * 22
    assert topic_ids_in(times.encode(6, id)) == {id}
    for number in range(200):
        times.remember(f"operator {number}", lambda: 7)
    text = times.encode(6, id)
    assert len(text) <= METADATA_LIMIT
    assert topic_ids_in(text) == marks_of(id) - {id}


def many(prefix: str = "") -> dict[str, str]:
    """The ids of so many topics that the names of all of them have no room in metadata."""
    return {f"topic{number}": f"{prefix}{number:022}" for number in range(300)}


def committed_by_a_task(ids: dict[str, str]) -> dict[TopicPartition, tuple[int, str]]:
    times = RememberedTimes()
    return {
        TopicPartition(topic, 0): (7, times.encode(6, id, ["all stores"], len(ids)))
        for topic, id in ids.items()
    }


def test_one_of_very_many_topics_that_is_created_anew_is_noticed() -> None:
    """The offsets of a task with more than about 60 inputs named no ids, so the worker began in the new topic."""
    committed = committed_by_a_task(many())
    assert committed_in_others(admin_of(**many()), committed) == set()
    admin: Any = Ids(**many() | {"topic7": "another"})
    assert committed_in_others(admin, committed) == {TopicPartition("topic7", 0)}


def test_a_topic_that_joins_or_leaves_very_many_changes_nothing() -> None:
    committed = committed_by_a_task(many())
    del committed[TopicPartition("topic7", 0)]
    committed[TopicPartition("topic8", 0)] = (7, "")
    assert committed_in_others(admin_of(**many()), committed) == set()


def test_very_many_topics_after_kafka_streams_are_all_read_on() -> None:
    """Java writes the names of all inputs with each input, and of two numbers the larger."""
    texts = committed_by_a_task(many())
    union: dict[str, int] = {}
    for _, text in texts.values():
        for name, number in decode_metadata(text)[1].items():
            union[name] = max(number, union.get(name, number))
    java = encode_metadata(6, union)
    assert len(java) <= 4_096
    committed = dict.fromkeys([*texts, TopicPartition("added", 0)], (7, java))
    assert committed_in_others(admin_of(**many(), added="C"), committed) == set()
    assert committed_in_others(admin_of(**many("anew"), added="C"), committed) == set()
    own = texts[TopicPartition("topic7", 0)]
    committed |= {TopicPartition("topic7", 0): own}  # a worker goes on after Java
    assert committed_in_others(admin_of(**many("anew"), added="C"), committed) == {
        TopicPartition("topic7", 0)
    }


def test_times_without_room_are_left_out_from_the_end() -> None:
    """A task with more than 58 windowed aggregations could not commit at all: brokers refused its metadata."""
    times = RememberedTimes()
    for number in range(100):
        times.remember(f"KSTREAM-AGGREGATE-{number:010}.stream-time", lambda: 7)
    times.remember("counts", lambda: 8)
    text = times.encode(6, "B" * 22)
    assert METADATA_LIMIT - 100 < len(text) <= METADATA_LIMIT
    names = list(decode_metadata(text)[1])
    assert names[:2] == ["counts", "KSTREAM-AGGREGATE-0000000000.stream-time"]


@pytest.mark.parametrize("operators", [0, 20, 52, 55, 100])
def test_kafka_streams_can_write_the_names_of_all_inputs_with_each_input(operators: int) -> None:
    """Java could not commit after it had taken over from workers, because the metadata had become too large."""
    inputs = 8
    times = RememberedTimes()
    for number in range(operators):
        times.remember(f"KSTREAM-AGGREGATE-{number:010}.stream-time", lambda: 7)
    union: dict[str, int] = {}
    for each in range(inputs):
        kind = "store" if each % 2 else "other store"
        notes = [f"{kind} orders-of-customers-{store}: values by key" for store in range(50)]
        union |= decode_metadata(times.encode(6, f"{each:022}", [*notes, "all stores"], inputs))[1]
    assert len(encode_metadata(6, union)) <= 4_096
    assert ("store orders-of-customers-0: values by key" in union) == (operators < 50)


def test_a_task_of_very_many_inputs_keeps_its_notes() -> None:
    """The ids of so many inputs have no room in metadata of Kafka Streams. All inputs share the notes."""
    notes = ["store counts: values by key", "all stores"]
    few, more = (RememberedTimes().encode(6, "B" * 22, notes, inputs) for inputs in (60, 100))
    assert decode_metadata(few)[1] == {f"{TOPIC_ID}{'B' * 22}": 0, notes[0]: 6, notes[1]: 6}
    (short,) = topic_ids_in(more)
    assert decode_metadata(more)[1] == {"topic id": int(short.removeprefix("#")), notes[0]: 6, notes[1]: 6}


@pytest.mark.parametrize("inputs", [1, 20, 36, 50, 60, 85, 100])
def test_the_note_of_topics_has_room_with_any_number_of_inputs(inputs: int) -> None:
    """The ids of 36 to 85 inputs left no room for the note, so the loss of one topic was not seen."""
    times, topics = RememberedTimes(), [f"topic{number}" for number in range(inputs)]
    times.remember("KSTREAM-AGGREGATE-0000000001.stream-time", lambda: 7)
    notes = ["store orders-of-customers: values by key, StringSerde/LongSerde", "all stores"]
    note = note_of_topics(topics, topics)
    texts = [times.encode(6, f"{number:022}", notes, inputs, note) for number in range(inputs)]
    union: dict[str, int] = {}
    for text in texts:
        names = decode_metadata(text)[1]
        assert {*notes, note} <= names.keys()
        assert noted_topics([text], topics) == noted_as_own([text], topics) == set(topics)
        union |= names
    assert len(encode_metadata(6, union)) <= METADATA_LIMIT  # Kafka Streams writes all names with each input
    whole = topic_ids_in(texts[0]) == {"0" * 22}
    assert whole == (inputs <= 36)
