"""Requests are repeated while a group has no coordinator, or a cluster no controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import OffsetSpec

from streamapp.broker.requests import ask_controller, committed, list_offsets, until_coordinated
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition

FLIGHTS = TopicPartition("flights", 0)


class Answers:
    """Gives one answer after another, and the last one for good."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer


class Group:
    def __init__(self, *answers: Any) -> None:
        self.committed = Answers(*answers)


def entry(offset: int, error: int | None = None) -> Any:
    class Entry(KafkaPartition):  # type: ignore[misc]
        @property
        def error(self) -> KafkaError | None:
            return None if error is None else KafkaError(error)

    return Entry(*FLIGHTS, offset)


def test_a_call_is_repeated_until_there_is_a_coordinator() -> None:
    call = Answers(KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR, "members")
    assert until_coordinated(call, seconds=60) == "members"
    assert call.asked == 3


def test_other_refusals_come_at_once() -> None:
    call = Answers(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="authorized|AUTHORIZATION"):
        until_coordinated(call, seconds=60)
    assert call.asked == 1


def test_it_is_not_repeated_for_ever() -> None:
    with pytest.raises(KafkaException, match="NOT_COORDINATOR"):
        until_coordinated(Answers(KafkaError.NOT_COORDINATOR), seconds=0)


def test_the_refusal_of_one_partition_is_not_taken_for_nothing_committed() -> None:
    group: Any = Group([entry(-1001, KafkaError.UNSTABLE_OFFSET_COMMIT)], [entry(7)])
    assert [found.offset for found in committed(group, [FLIGHTS], seconds=60)] == [7]
    group = Group([entry(-1001, KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(KafkaException):
        committed(group, [FLIGHTS], seconds=60)


class Logs:
    """An admin client of a cluster with the topic ``planes``, in librdkafka's words about a missing topic."""

    def __init__(self) -> None:
        self.asked: list[list[tuple[str, int]]] = []

    def list_offsets(self, wanted: Mapping[KafkaPartition, Any], **_: Any) -> Mapping[Any, Future[Any]]:
        self.asked.append([(each.topic, each.partition) for each in wanted])
        answers: dict[KafkaPartition, Future[Any]] = {each: Future() for each in wanted}
        for each, answer in answers.items():
            if (each.topic, each.partition) == ("planes", 0):
                answer.set_result(SimpleNamespace(offset=7))
            else:
                answer.set_exception(KafkaException(KafkaError(KafkaError._NOENT)))
        return answers

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={"planes": SimpleNamespace(partitions={0: None})})


@pytest.mark.parametrize("missing", [FLIGHTS, TopicPartition("planes", 1)])
def test_a_partition_that_does_not_exist_is_not_waited_for(missing: TopicPartition) -> None:
    logs: Any = Logs()
    asked = [TopicPartition("planes", 0), missing]
    with pytest.raises(BrokerError, match=f"{missing} are not known: .*[Uu]nknown topic or partition"):
        list_offsets(logs, asked, OffsetSpec.latest(), seconds=60)
    assert logs.asked == [asked, [missing]]


class Controller:
    """Answers each request for a topic with the next code of the topic, 0 for success, and the last one for good."""

    def __init__(self, **codes: list[int]) -> None:
        self.codes = codes
        self.asked: list[list[str]] = []

    def __call__(self, topics: Iterable[str], **_: Any) -> Mapping[str, Future[str]]:
        self.asked.append([*topics])
        answers: dict[str, Future[str]] = {}
        for topic in topics:
            codes, answers[topic] = self.codes[topic], Future()
            code = codes.pop(0) if len(codes) > 1 else codes[0]
            if code:
                answers[topic].set_exception(KafkaException(KafkaError(code)))
            else:
                answers[topic].set_result(topic)
        return answers


@pytest.mark.parametrize(
    "passing",
    [KafkaError._TRANSPORT, KafkaError.NOT_CONTROLLER, KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT],
)
def test_a_topic_is_asked_for_again_while_the_cluster_has_no_controller(passing: int) -> None:
    controller = Controller(planes=[0], flights=[passing, passing, 0])
    found = ask_controller(controller, ["planes", "flights"], seconds=60)
    assert {topic: answer.result() for topic, answer in found.items()} == {
        "planes": "planes",
        "flights": "flights",
    }
    assert controller.asked == [["planes", "flights"], ["flights"], ["flights"]]


def test_a_refused_topic_is_not_asked_for_again() -> None:
    controller = Controller(flights=[KafkaError.INVALID_CONFIG])
    (answer,) = ask_controller(controller, ["flights"], seconds=60).values()
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        answer.result()
    assert len(controller.asked) == 1


def test_a_cluster_without_a_controller_is_not_asked_for_ever() -> None:
    (answer,) = ask_controller(Controller(flights=[KafkaError._TRANSPORT]), ["flights"], seconds=0.3).values()
    with pytest.raises(KafkaException, match="_TRANSPORT"):
        answer.result()
