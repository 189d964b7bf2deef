"""The ids of topics, told by a scripted admin client."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from streamapp.engine.metadata import BACKFILL, TOPIC_ID, RememberedTimes, encode_metadata, topic_ids_in
from streamapp.records import TopicPartition
from streamapp.runners.worker.topic_ids import LostTopic, TopicIds, committed_in_others


class Admin:
    """Answers each question for topics with the same id."""

    def __init__(self, topic_id: str) -> None:
        self._answer: Future[Any] = Future()
        self._answer.set_result(SimpleNamespace(topic_id=topic_id))

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        return dict.fromkeys(topics.topic_names, self._answer)


def test_a_topic_that_is_created_anew_before_the_first_look_is_noticed() -> None:
    admin: Any = Admin("B")
    ids = TopicIds(admin, ["orders"], {"orders": "A"})
    ids._asked_at = -1e9
    assert [ids.lost(), ids.lost()] == [None, LostTopic("orders", anew=True)]


def test_offsets_are_compared_with_the_ids_in_their_metadata() -> None:
    def metadata(*topic_ids: str) -> str:
        return encode_metadata(5, {f"{TOPIC_ID}{each}": 0 for each in topic_ids})

    texts = (metadata("A"), metadata("B"), metadata("A", "B"), metadata(), "", f"{BACKFILL}{{}}")
    committed = {TopicPartition("orders", number): (7, text) for number, text in enumerate(texts)}
    admin: Any = Admin("B")
    assert committed_in_others(admin, committed) == {TopicPartition("orders", 0)}


def test_a_task_names_the_topic_and_remembers_no_earlier_one() -> None:
    times = RememberedTimes()
    assert times.recall(encode_metadata(5, {f"{TOPIC_ID}A": 0})) == 5
    assert topic_ids_in(times.encode(6, "B")) == {"B"}
    assert topic_ids_in(times.encode(6, None)) == set()
