"""The node of a repartition topic, and the names of its parts."""

from __future__ import annotations

import re
from typing import Any

from streamapp.dsl.graph_nodes import RepartitionNode
from streamapp.dsl.naming import Names
from streamapp.serdes.base import Serde
from streamapp.topology.nodes import Partitioner

__all__ = ["REPARTITION_SUFFIX", "repartition_node"]

REPARTITION_SUFFIX = "-repartition"
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


def repartition_node(
    names: Names | None,
    prefix: str,
    key_serde: Serde[Any],
    value_serde: Serde[Any],
    *,
    named: bool = True,
    partitioner: Partitioner | None = None,
    partitions: int | None = None,
    optimizable: bool = True,
) -> RepartitionNode:
    """The node of the topic ``<prefix>-repartition``. ``named`` is true if the user chose the prefix.

    As in Kafka Streams, each node uses up three numbers of the counter in ``names``. Its parts get the names with these
    numbers only if the prefix is a generated name, too. ``names`` is None for a node that an optimisation makes, which
    uses up no numbers.
    """
    topic = prefix if prefix.endswith(REPARTITION_SUFFIX) else prefix + REPARTITION_SUFFIX
    sink, filter_name, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    if names is not None:
        if not named:
            names.note_generated(repartition=topic)
        generated = tuple(names.new(p) for p in ("KSTREAM-SINK-", "KSTREAM-FILTER-", "KSTREAM-SOURCE-"))
        if _GENERATED.fullmatch(prefix):
            sink, filter_name, source = generated
    return RepartitionNode(
        topic, filter_name, sink, source, key_serde, value_serde, partitioner, partitions, optimizable
    )
