"""An application whose tables are asked in SQL: what is sold of each product, in all and by day."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from streamapp import (
    App,
    JsonSerde,
    LongSerde,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
)

TEXT, NUMBER = StringSerde(), LongSerde()


class Sales(msgspec.Struct):
    orders: int = 0
    cents: int = 0


def add(product: str, cents: int, sales: Sales) -> Sales:
    return Sales(sales.orders + 1, sales.cents + cents)


def application(name: str, servers: str) -> App:
    """Reads the topic ``{name}-orders``: product -> cents."""

    def describe(builder: StreamsBuilder) -> None:
        orders = builder.stream(f"{name}-orders", key_serde=TEXT, value_serde=NUMBER).group_by_key()
        sales = Materialized("sales", key_serde=TEXT, value_serde=JsonSerde(Sales))
        orders.aggregate(Sales, add, materialized=sales)
        by_day = Materialized(
            "orders-by-day", key_serde=TEXT, value_serde=NUMBER, retention=timedelta(days=400)
        )
        orders.windowed_by(TimeWindows.of_size_with_no_grace(timedelta(days=1))).count(materialized=by_day)

    return App(name, topology=describe, config=StreamsConfig(name, bootstrap_servers=servers))
