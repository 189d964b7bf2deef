from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as reference
from hypothesis import given
from hypothesis import strategies as st

from streamapp._base.partitioning import murmur2, partition_for


@pytest.mark.parametrize(
    ("key", "hash"),
    [
        (b"21", 3321034988),
        (b"foobar", 3504634814),
        (b"", 275646681),
        (b"a-little-bit-long-string", -985981536),
    ],
)
def test_hashes_as_the_java_client_does(key: bytes, hash: int) -> None:
    assert murmur2(key) == hash & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_agrees_with_another_implementation_for_every_length(key: bytes) -> None:
    assert murmur2(key) == reference(key) & 0xFFFFFFFF


@given(st.binary(), st.integers(1, 1000))
def test_partitions_are_in_range(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for(key, partitions) < partitions


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partition_for(b"k", 0)
