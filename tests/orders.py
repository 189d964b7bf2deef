"""Orders and the sellers that they name: a foreign-key join, changes of both sides by chance, and the result that they come to."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from streamapp import StreamsBuilder, StreamsConfig, StringSerde, Topology

TEXT = StringSerde()
TEXTS: dict[str, Any] = {"key_serde": TEXT, "value_serde": TEXT}

Change = tuple[str, str, str | None]
"""Side ("orders" or "sellers"), key, value (None: a deletion)."""


def config(application: str = "app", **settings: Any) -> StreamsConfig:
    return StreamsConfig(application, default_key_serde=TEXT, default_value_serde=TEXT, **settings)


def seller_of(order: str) -> str | None:
    """An order is "<seller>/<number of the update>"; without a seller it is joined with none."""
    return order.split("/")[0] or None


def joined(order: str, seller: str | None) -> str:
    return f"{order}+{seller}"


def topology(kind: str, config: StreamsConfig, *, mapped: bool = False, prefix: str = "") -> Topology:
    """Writes the join to the topic "joined". ``mapped``: neither side has a store of its own."""
    builder = StreamsBuilder(config)
    orders, sellers = builder.table(f"{prefix}orders"), builder.table(f"{prefix}sellers")
    if mapped:
        orders, sellers = orders.map_values(str.lower), sellers.map_values(str.upper).filter(lambda *_: True)
    join = orders.join if kind == "inner" else orders.left_join
    join(sellers, joined, foreign_key=seller_of).to_stream().to(f"{prefix}joined", **TEXTS)
    return builder.build()


def changes(chance: random.Random, count: int, *, keys: int = 4, again: bool = False) -> Iterator[Change]:
    """Changes of either side, a third of them deletions. ``again``: values come back, so that answers to an older row fit a newer one."""
    for number in range(count):
        side = chance.choice(("orders", "sellers"))
        key = f"{side[0]}{chance.randrange(keys)}"
        if not chance.randrange(3):
            yield side, key, None
            continue
        value = "v" if again else f"v{number}"
        if side == "orders":
            seller = f"s{chance.randrange(keys)}" if chance.randrange(6) else ""
            value = f"{seller}/{value}"
        yield side, key, value


def fold(kind: str, changes: list[Change], *, mapped: bool = False) -> dict[str, str]:
    """The join of both sides as they are in the end."""
    sides: dict[str, dict[str, str | None]] = {"orders": {}, "sellers": {}}
    for side, key, value in changes:
        sides[side][key] = value.upper() if value and mapped and side == "sellers" else value
    result = {}
    for key, order in sides["orders"].items():
        seller = None if order is None else sides["sellers"].get(seller_of(order) or "")
        if order is not None and (kind == "left" or seller is not None):
            result[key] = joined(order, seller)
    return result
