"""State folders and snapshots outlast a rename of a class."""

from __future__ import annotations

import importlib
import pkgutil

import streamapp.engine
import streamapp.serdes
import streamapp.state
from streamapp import (
    JsonSerde,
    Materialized,
    Need,
    Processor,
    Serde,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    compare_topologies,
)
from streamapp._base.names import persistent_name
from streamapp.engine.operator import Operator
from streamapp.engine.operators.closing import LateOutput
from streamapp.engine.operators.window_aggregate import WindowedAggregate
from streamapp.topology.snapshot import snapshot

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}

OPERATORS = """
AsyncMap Branch Delayed DropNullKeys Expiring Filter FlatMap FlatMapValues ForEach ForeignTableJoin Guarded Map MapValues PassThrough Parking Peek
ProcessorOperator ResponseJoin SelectKey SessionWindowAggregate SlidingWindowAggregate Staged StreamAggregate StreamGlobalTableJoin
StreamJoinWindow StreamReduce StreamStreamJoin StreamStreamSelfJoin StreamTableJoin SubscriptionJoin SubscriptionReceive SubscriptionSend
TableAggregate TableFilter TableJoin TableJoinMerger TableMapValues TableReduce TableRepartitionMap TableSource TableSuppress
TableTransformValues ToStream WindowAggregate
"""
SERDES = """
AvroSerde BooleanSerde BytesSerde ChangeSerde DoubleSerde FloatSerde IntegerSerde JsonSchemaSerde JsonSerde LeftOrRightSerde ListSerde LongSerde ModelJson ParkedRecordSerde
ProtobufSerde SessionWindowedSerde ShortSerde StringSerde SubscriptionResponseSerde SubscriptionSerde TimeWindowedSerde UUIDSerde VoidSerde
"""


def ours(base):
    for package in (streamapp.engine, streamapp.serdes, streamapp.state):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found, rest = [], [base]
    while rest:
        below = [cls for cls in rest.pop().__subclasses__() if cls.__module__.startswith("streamapp.")]
        found += below
        rest += below
    return [cls for cls in found if cls not in (LateOutput, WindowedAggregate)]  # abstract


def test_each_operator_and_serde_states_its_name_and_none_that_was_written_is_gone():
    """A new class adds its name to the list; a name that is in state folders of users never leaves the list."""
    for base, written in ((Operator, OPERATORS), (Serde, SERDES)):
        names = [vars(cls).get("persistent_name") for cls in ours(base)]
        assert sorted(names) == sorted(written.split())


class Prices(JsonSerde):
    """A user's serde."""


def table(value_serde):
    builder = StreamsBuilder(StreamsConfig("app"))
    builder.table("in", key_serde=StringSerde(), value_serde=value_serde, materialized=Materialized("rows"))
    return builder.build().plan()


def test_a_serde_keeps_its_state_when_its_class_is_renamed():
    class NewPrices(JsonSerde):
        persistent_name = "Prices"

    assert table(NewPrices()).fingerprint == table(Prices()).fingerprint != table(JsonSerde()).fingerprint
    assert compare_topologies(table(Prices()), table(NewPrices())).need is Need.NOTHING
    assert compare_topologies(table(Prices()), table(JsonSerde())).need is Need.RESET


def test_a_subclass_is_not_mistaken_for_its_base():
    assert persistent_name(Prices()) == "Prices"
    assert persistent_name(JsonSerde()) == "JsonSerde"


class Keeps(Processor):
    def process(self, record): ...


class Supplier:
    def __call__(self):
        return Keeps()


def test_another_way_to_supply_the_same_processor_is_no_other_store():
    def version(supplier):
        builder = StreamsBuilder(StreamsConfig("app"))
        builder.add_state_store(Stores.key_value("kept", StringSerde(), StringSerde()))
        builder.stream("in", **TEXT).process(supplier, "kept")
        return builder.build().plan()

    written = snapshot(version(Keeps))
    assert written["stores"]["kept"]["operators"] == ["ProcessorOperator"]
    for supplier in (lambda: Keeps(), Supplier()):
        assert compare_topologies(version(Keeps), version(supplier)).need is Need.NOTHING
    for earlier in ("type", "function"):
        written["stores"]["kept"]["operators"] = [earlier]
        assert compare_topologies(written, version(Keeps)).need is Need.NOTHING
