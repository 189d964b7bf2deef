"""The builder of foreign-key joins of tables (KIP-213).

Each row of the left table subscribes to a row of the right table, over two internal topics::

    left table -> SubscriptionSend -> <registration topic> -> SubscriptionReceive -> SubscriptionJoin --+
    right table ----------------------------------------------> ForeignTableJoin ----------------------+
                                                                                                        |
    result table <- TableSource <- ResponseJoin <- <response topic> <-----------------------------------+

The operators between the two topics run in the task that has the right table's row. `SubscriptionReceive` keeps the
subscriptions in a store by (foreign key, primary key). `SubscriptionJoin` answers a new subscription with the right
row. `ForeignTableJoin` sends a changed right row to all its subscribers. Each subscription has a hash of the left
value, and each answer repeats the hash. So `ResponseJoin` can drop an answer if the left row has changed in the
meantime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamapp.dsl.graph_nodes import ProcessorNode, SinkNode, SourceNode
from streamapp.dsl.materialize import Materialized, keeps_headers, key_value_spec, named_store
from streamapp.dsl.steps import Fixed, SourceStep, Step
from streamapp.engine.operator import Operator
from streamapp.engine.operators.foreign_key import (
    ForeignTableJoin,
    OtherPartition,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionResponseSerde,
    SubscriptionSend,
    SubscriptionSerde,
    response_partition,
)
from streamapp.on_error import Answer, Chooser
from streamapp.serdes import BytesSerde
from streamapp.state import operator_kinds
from streamapp.state.spec import StoreSpec
from streamapp.topology.nodes import Partitioner

if TYPE_CHECKING:
    from streamapp.dsl.ktable import KTable

__all__ = ["join_on_foreign_key"]

_FK = "KTABLE-FK-JOIN-"
_REGISTRATION = f"{_FK}SUBSCRIPTION-REGISTRATION-"
_PROCESSOR = f"{_FK}SUBSCRIPTION-PROCESSOR-"
_RESPONSE = f"{_FK}SUBSCRIPTION-RESPONSE-"
_RESOLVER = f"{_FK}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
_STORE = f"{_FK}SUBSCRIPTION-STATE-STORE-"
_OUTPUT = f"{_FK}OUTPUT-"


def join_on_foreign_key(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    foreign_key: Callable[..., Any],
    foreign_key_with_key: bool,
    other_partitioner: Partitioner | None,
    joiner: Callable[[Any, Any], Any],
    is_left_join: bool,
    materialized: Materialized | None,
    name: str | None,
    on_error: Answer | Chooser | None,
) -> KTable[Any, Any]:
    """The result of a foreign-key join. Its nodes have the names and the order of ``KTableImpl.doJoinOnForeignKey``."""
    context, names, graph = left._context, left._context.names, left._context.graph
    right._step.enable_old_values(True)
    left._step.enable_old_values(True)

    def named(suffix: str, prefix: str) -> str:
        return names.suffixed_or_new(name, suffix, prefix)

    operator = f"the foreign-key join of {left.name} and {right.name}"
    key_serde = context.key_serde(left.key_serde, operator)
    value_serde = context.value_serde(left.value_serde, operator)
    foreign_key_serde = context.key_serde(right.key_serde, operator)
    subscription_serde = SubscriptionSerde(key_serde)
    right_value_serde = context.value_serde(right.value_serde, operator)
    response_serde = SubscriptionResponseSerde(right_value_serde)
    extractor = foreign_key if foreign_key_with_key else _OfValue(foreign_key)

    registration_topic = named("-subscription-registration", _REGISTRATION) + "-topic"
    send = ProcessorNode(
        named("-subscription-registration-processor", _REGISTRATION),
        _VersionedStep(
            lambda versioned: SubscriptionSend(
                extractor,
                is_left_join,
                registration_topic,
                foreign_key_serde,
                value_serde,
                versioned,
                on_error,
            )
        ),
        checks_versions=True,
    )
    graph.add(send, left._node)
    registration_sink = SinkNode(
        named("-subscription-registration-sink", "KTABLE-SINK-"),
        registration_topic,
        foreign_key_serde,
        subscription_serde,
        None if other_partitioner is None else OtherPartition(other_partitioner),
        internal=True,
    )
    graph.add(registration_sink, send)
    registration_source = SourceNode(
        named("-subscription-registration-source", "KTABLE-SOURCE-"),
        (registration_topic,),
        foreign_key_serde,
        subscription_serde,
    )
    graph.add(registration_source, registration_sink)
    graph.copartitions.append(right._sources | {registration_source.name})

    with_headers = keeps_headers(context.config, context.config.dsl_store_type)
    subscriptions = StoreSpec(
        name=named("-subscription-store", _STORE),
        kind=operator_kinds.HeadersSubscriptions() if with_headers else operator_kinds.Subscriptions(),
        key_serde=BytesSerde(),
        value_serde=subscription_serde,
        serde_topic=registration_topic,
        persistent=context.config.dsl_store_type == "rocksdb",
        internal=True,
    )
    context.stores[subscriptions.name] = subscriptions
    receive = ProcessorNode(
        named("-subscription-receive", _PROCESSOR),
        Fixed(
            SubscriptionReceive(subscriptions.name, registration_topic, foreign_key_serde, key_serde),
            subscriptions,
        ),
    )
    graph.add(receive, registration_source)
    right_view = right._step.view()
    # Generated names have numbers from a counter, so these calls have the order of Kafka Streams.
    subscription_join_name = named("-subscription-join-foreign", _PROCESSOR)
    foreign_join_name = named("-foreign-join-subscription", _PROCESSOR)
    response_topic = named("-subscription-response", _RESPONSE) + "-topic"
    subscription_join = ProcessorNode(
        subscription_join_name,
        Fixed(SubscriptionJoin(right_view, response_topic, right_value_serde)),
        right_view.store_names,
    )
    graph.add(subscription_join, receive)
    foreign_join = ProcessorNode(
        foreign_join_name,
        _VersionedStep(
            lambda versioned: ForeignTableJoin(
                subscriptions.name,
                registration_topic,
                response_topic,
                foreign_key_serde,
                key_serde,
                right_value_serde,
                versioned,
            ),
            subscriptions,
        ),
        checks_versions=True,
    )
    graph.add(foreign_join, right._node)

    response_sink = SinkNode(
        named("-subscription-response-sink", "KTABLE-SINK-"),
        response_topic,
        key_serde,
        response_serde,
        response_partition,
        internal=True,
    )
    graph.add(response_sink, subscription_join, foreign_join)
    response_source = SourceNode(
        named("-subscription-response-source", "KTABLE-SOURCE-"), (response_topic,), key_serde, response_serde
    )
    graph.add(response_source, response_sink)
    sources = left._sources | {response_source.name}
    graph.copartitions.append(sources)
    left_view = left._step.view()
    resolve = ProcessorNode(
        named("-subscription-response-resolver", _RESOLVER),
        Fixed(ResponseJoin(left_view, joiner, is_left_join, registration_topic, value_serde, on_error)),
        left_view.store_names,
    )
    graph.add(resolve, response_source)

    result_name = named("-result", _OUTPUT)
    m = materialized or Materialized()
    store = named_store(context, materialized, _OUTPUT)
    result_key_serde = m.key_serde or key_serde
    spec = key_value_spec(context, store, materialized, result_key_serde, m.value_serde)
    step = SourceStep(spec, m.name is not None)
    result = ProcessorNode(result_name, step)
    result.output_versioned = m.versioned
    graph.add(result, resolve)
    return context.faces.table(context, result_name, result, sources, key_serde, m.value_serde, step, store)


class _VersionedStep(Step):
    def __init__(self, make_operator: Callable[[bool], Operator], *stores: StoreSpec) -> None:
        self._make_operator, self._stores = make_operator, stores

    def operator(self, versioned: bool) -> Operator:
        return self._make_operator(versioned)

    def stores(self) -> tuple[StoreSpec, ...]:
        return self._stores


class _OfValue:
    """An extractor that ignores the key. `_OfValue` is a class, because a lambda cannot be pickled."""

    def __init__(self, extract: Callable[[Any], Any]) -> None:
        self._extract = extract

    def __call__(self, key: Any, value: Any) -> Any:
        return self._extract(value)
