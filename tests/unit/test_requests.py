"""A group that has no coordinator yet, as on a cluster whose first group this is, is asked again."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp.broker.requests import committed, until_coordinated
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
