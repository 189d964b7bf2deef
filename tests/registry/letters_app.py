"""An application whose topology and consumer make dead letters of rides in Avro, and of orders in Protobuf."""

from __future__ import annotations

import os

import msgspec

from streamapp import App, AvroSerde, ProtobufSerde, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.consumer import ConsumerRecord

NAME = os.environ["LETTERS_NAME"]


class Ride(msgspec.Struct):
    km: int
    city: str = ""


class Order(msgspec.Struct):
    item: str
    pieces: int = 1


def price(ride: Ride) -> str:
    if ride.km < 0:
        raise ValueError(f"a ride of {ride.km} km")
    return f"{ride.km * 2} CHF in {ride.city}"


def describe(builder: StreamsBuilder) -> None:
    rides = builder.stream(
        f"{NAME}-rides", key_serde=StringSerde(), value_serde=AvroSerde(type=Ride), on_error="dead_letter"
    )
    rides.map_values(price, name="price", on_error="dead_letter").to(
        f"{NAME}-prices", key_serde=StringSerde(), value_serde=StringSerde()
    )


app = App(
    NAME,
    topology=describe,
    config=StreamsConfig(NAME, commit_interval_ms=200, dead_letter_queue_topic=f"{NAME}-dead"),
    datadir=os.environ["LETTERS_DATADIR"],
    web_port=int(os.environ.get("LETTERS_WEB_PORT", "6066")),
)


@app.consume(
    f"{NAME}-orders",
    key_serde=StringSerde(),
    value_serde=ProtobufSerde(type=Order),
    on_error="dead_letter",
)
def pack(order: ConsumerRecord[str, Order]) -> None:
    if order.value.pieces > 100:
        raise ValueError(f"{order.value.pieces} pieces")
