"""Requests that neither confluent-kafka nor aiokafka offers: the open transactions of a cluster, and its feature
levels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any, NamedTuple, TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.protocol.api import Request, RequestStruct, Response, ResponseHeader_v0
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)
from confluent_kafka import KafkaError, KafkaException

from streamapp.broker.requests import until_coordinated
from streamapp.broker.settings import KafkaSettings
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition

__all__ = ["OpenTransaction", "feature_levels", "open_transactions_of"]

T = TypeVar("T")

_TEXT, _TAGS = CompactString("utf-8"), ("tags", TaggedFields)
_FINALIZED = 2
"""The tag of the feature levels in an answer to ApiVersions."""
_UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort")
_NO_TRANSACTION = 105
"""Kafka's code for a transactional id that has expired (``TRANSACTIONAL_ID_NOT_FOUND``)."""
_GRANT = "Grant this client DESCRIBE on the transactional ids and on their topics"
_REMEDIES = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _GRANT,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Grant this client DESCRIBE on the cluster",
    KafkaError.UNSUPPORTED_VERSION: "Ask brokers of Kafka 3.0 or newer",
}


class OpenTransaction(NamedTuple):
    """A transaction that has not ended.

    ``began_ms`` is the start by the coordinator's clock, in ms since 1970. ``timeout_ms`` is the producer's limit.
    """

    transactional_id: str
    began_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


def open_transactions_of(settings: KafkaSettings, *, seconds: float = 10.0) -> list[OpenTransaction]:
    """All open transactions of the cluster that this client may see (KIP-664).

    While a coordinator is loading, or moves to another broker, the requests are repeated, for at most ``seconds``
    seconds. The wait for the answer to each request has the same limit. Raises `BrokerError` if Kafka does not answer,
    or refuses to answer.
    """

    async def look(client: AIOKafkaClient) -> list[OpenTransaction]:
        found = []
        for broker in client.cluster.brokers():
            listed = await _send(client, broker.nodeId, _ListTransactions())
            _check(listed.error_code)
            names = [state[0] for state in listed.transaction_states if state[2] in _UNDER_WAY]
            if not names:
                continue
            described = await _send(client, broker.nodeId, _DescribeTransactions(names))
            for error, name, state, timeout_ms, began_ms, _, _, topics, _ in described.transaction_states:
                if error == _NO_TRANSACTION:
                    continue
                _check(error)
                if state in _UNDER_WAY:
                    partitions = tuple(
                        TopicPartition(topic, p) for topic, numbers, _ in topics for p in numbers
                    )
                    found.append(OpenTransaction(name, began_ms, timeout_ms, partitions))
        return found

    return _with_client(settings, look, seconds, "open transactions")


def feature_levels(settings: KafkaSettings, *, seconds: float = 10.0) -> dict[str, int]:
    """The features of the cluster, such as ``transaction.version``, with the version that all brokers use (KIP-584).

    ``seconds`` limits each request. Raises `BrokerError` if Kafka does not answer, or refuses to answer.
    """

    async def look(client: AIOKafkaClient) -> dict[str, int]:
        answer = await _send(client, client.get_random_node(), _Features())
        _check(answer.error_code)
        raw = answer.tags.get(_FINALIZED)
        if raw is None:
            return {}
        rows = CompactArray(("name", _TEXT), ("max", Int16), ("min", Int16), _TAGS).decode(BytesIO(raw))
        return {name: highest for name, highest, _, _ in rows or ()}

    return _with_client(settings, look, seconds, "feature levels")


def _check(code: int) -> None:
    """Raises `KafkaException` for the error code of an answer."""
    if code:
        raise KafkaException(KafkaError(code))


def _with_client(
    settings: KafkaSettings, look: Callable[[AIOKafkaClient], Awaitable[T]], seconds: float, what: str
) -> T:
    async def run() -> T:
        client = AIOKafkaClient(
            **settings.aiokafka(), client_id="streamapp", request_timeout_ms=int(seconds * 1000)
        )
        try:
            await client.bootstrap()
            return await asyncio.wait_for(look(client), 3 * seconds)
        finally:
            await client.close()

    try:
        return until_coordinated(lambda: asyncio.run(run()), seconds=seconds)
    except KafkaException as error:
        refusal = error.args[0]
        remedy = _REMEDIES.get(refusal.code(), "Try again when all brokers of the cluster run")
        raise BrokerError(
            f"Kafka at {settings.bootstrap_servers} does not tell the {what}: {refusal.str()}. {remedy}"
        ) from error
    except (AioKafkaError, TimeoutError, OSError) as error:
        raise BrokerError(f"Kafka at {settings.bootstrap_servers} does not answer: {error!r}") from error


async def _send(client: AIOKafkaClient, node: int, request: Request[Any]) -> Any:
    await client.ready(node)
    return await client.send(node, request)


class _ListTransactionsAnswer(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 66, 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_state_filters", CompactArray(_TEXT)),
        (
            "transaction_states",
            CompactArray(("transactional_id", _TEXT), ("producer_id", Int64), ("state", _TEXT), _TAGS),
        ),
        _TAGS,
    )


class _ListTransactions_v0(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, FLEXIBLE_VERSION = 66, 0, True
    RESPONSE_TYPE = _ListTransactionsAnswer
    SCHEMA = Schema(
        ("state_filters", CompactArray(_TEXT)), ("producer_id_filters", CompactArray(Int64)), _TAGS
    )


class _ListTransactions(Request[_ListTransactions_v0]):  # type: ignore[misc]
    API_KEY = 66

    def build(self, request_struct_class: type[_ListTransactions_v0]) -> _ListTransactions_v0:
        return request_struct_class([], [], {})


class _DescribeTransactionsAnswer(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 65, 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", _TEXT),
                ("state", _TEXT),
                ("timeout_ms", Int32),
                ("start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("topics", CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), _TAGS)),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _DescribeTransactions_v0(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, FLEXIBLE_VERSION = 65, 0, True
    RESPONSE_TYPE = _DescribeTransactionsAnswer
    SCHEMA = Schema(("transactional_ids", CompactArray(_TEXT)), _TAGS)


class _DescribeTransactions(Request[_DescribeTransactions_v0]):  # type: ignore[misc]
    API_KEY = 65

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def build(self, request_struct_class: type[_DescribeTransactions_v0]) -> _DescribeTransactions_v0:
        return request_struct_class(self._names, {})


class _FeaturesAnswer(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 18, 3
    SCHEMA = Schema(
        ("error_code", Int16),
        ("api_keys", CompactArray(("api_key", Int16), ("min", Int16), ("max", Int16), _TAGS)),
        ("throttle_time_ms", Int32),
        _TAGS,
    )


class _Features_v3(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, FLEXIBLE_VERSION = 18, 3, True
    RESPONSE_TYPE = _FeaturesAnswer
    SCHEMA = Schema(("client_software_name", _TEXT), ("client_software_version", _TEXT), _TAGS)

    def parse_response_header(self, read_buffer: BytesIO | bytes) -> Any:
        return ResponseHeader_v0.decode(read_buffer)  # the old header, which any client can read (KIP-511)


class _Features(Request[_Features_v3]):  # type: ignore[misc]
    API_KEY = 18

    def build(self, request_struct_class: type[_Features_v3]) -> _Features_v3:
        return request_struct_class("streamapp", "1", {})
