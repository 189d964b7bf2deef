"""The size of values that are not serialized yet."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from enum import Enum
from typing import Any, ClassVar

import pytest

from streamapp._base import rough_size as module
from streamapp._base.rough_size import rough_size


class State(Enum):
    PAID = 1
    OPEN = 2


@dataclass
class Order:
    kinds: ClassVar[int]
    id: str
    state: State
    checked: InitVar[bool]


def test_the_member_of_an_enum_is_one_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count went through the class of the member and all that its functions know, and did not end."""
    monkeypatch.setattr(module, "_MOST_ITEMS", 20)
    assert rough_size([State.PAID, State, "abc"]) == 8 + 8 + 3


def test_fields_without_a_value_count_nothing_and_raise_nothing() -> None:
    """`send_soon` raised AttributeError for dataclasses with ClassVar or InitVar."""
    assert rough_size(Order("o1", State.OPEN, True)) == 8 + 2 + 8 + 8 + 8


def test_a_value_that_contains_itself_twice_has_an_end() -> None:
    itself: list[Any] = []
    itself += [itself, itself]
    assert rough_size(itself) == 0
    assert rough_size([[[["abc"]]], {"k": (b"d",)}]) == 5
