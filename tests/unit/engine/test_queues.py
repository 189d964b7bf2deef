"""The order in which a task takes from its inputs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamapp.engine import queues
from streamapp.engine.java_heap import JavaHeap
from streamapp.engine.queues import RecordQueue
from streamapp.records import RecordBatch, TopicPartition
from streamapp.serdes import JsonSerde, StringSerde
from streamapp.serdes.base import Serde
from streamapp.topology.nodes import SourceNode


@given(st.lists(st.one_of(st.integers(0, 5), st.none()), max_size=60))
def test_the_earliest_head_is_always_first(steps: list[int | None]) -> None:
    """A number: a queue with this head is pushed; None: the first one is popped."""
    heap = JavaHeap[Any]()
    model: list[int] = []
    for time in steps:
        if time is not None:
            heap.push(time, time)
            model.append(time)
        elif model:
            assert heap.earliest == min(model)
            popped = heap.pop()
            assert popped == min(model)
            model.remove(popped)
    assert heap.earliest == min(model, default=None)


def test_equal_heads_of_two_queues_take_turns() -> None:
    heap = JavaHeap[Any]()
    heap.push("a", 1)
    heap.push("b", 1)
    order = []
    for _ in range(4):
        queue = heap.pop()
        order.append(queue)
        heap.push(queue, 1)
    assert order == ["a", "b", "a", "b"]


def test_equal_heads_of_many_come_in_the_order_of_a_binary_heap() -> None:
    """What Java's PriorityQueue gives for the same pushes."""
    heap = JavaHeap[Any]()
    for name in "abcde":
        heap.push(name, 7)
    assert [heap.pop() for _ in range(5)] == ["a", "e", "d", "c", "b"]


def _queue(key_serde: Serde[Any]) -> RecordQueue:
    source = SourceNode("source", ("in",), None, key_serde, StringSerde())
    return RecordQueue(TopicPartition("in", 0), source, lambda *record: None, None)


def _batch(*keys: bytes) -> RecordBatch:
    return RecordBatch(keys, [b""] * len(keys), [0] * len(keys), list(range(len(keys))))


def test_keys_that_come_again_are_decoded_once() -> None:
    queue = _queue(StringSerde())
    first, again = queue.key_of(b"J" + b"FK"), queue.key_of(b"JF" + b"K")
    assert first == "JFK"
    assert again is first


def test_keys_that_can_change_are_decoded_each_time() -> None:
    queue = _queue(JsonSerde())
    first, again = queue.key_of(b'["JFK"]'), queue.key_of(b'["JFK"]')
    assert first == again
    assert first is not again


def test_many_keys_are_not_remembered(monkeypatch: Any) -> None:
    monkeypatch.setattr(queues, "_FEW_KEYS", 2)
    queue = _queue(StringSerde())

    def take(*keys: bytes) -> int:
        queue.add(_batch(*keys))
        for key in keys:
            assert queue.key_of(key) == key.decode()
        return len(queue.keys)

    assert take(b"a", b"b", b"c") == 3
    assert take(b"a", b"a") == 0
