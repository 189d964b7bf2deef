"""The asynchronous steps of a `KStream`, as methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from streamapp._base.callables import require_function
from streamapp._base.durations import Duration, to_ms
from streamapp.dsl.answers import answer_of_edge
from streamapp.dsl.stateless_methods import StatelessMethods
from streamapp.engine.asynchronous import Order
from streamapp.engine.operators.asynchronous import AsyncMap
from streamapp.errors import TopologyError
from streamapp.on_error import OnError, Retry

if TYPE_CHECKING:
    from streamapp.dsl.kstream import KStream

__all__ = ["AsyncMethods"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")

_TIMEOUT = timedelta(seconds=5)


class AsyncMethods(StatelessMethods[K, V]):
    """Steps whose function is a coroutine: a lookup over HTTP, a query of a database."""

    def map_async(
        self,
        fn: Callable[[K, V], Awaitable[tuple[K2, V2]]],
        *,
        concurrency: int = 16,
        order: Order = "key",
        timeout: Duration = _TIMEOUT,
        on_timeout: Callable[[K, V], tuple[K2, V2]] | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K2, V2]:
        """One new (key, value) pair for each record, from a coroutine; grouping or joining repartitions.

        As `map_values_async`, which is to be preferred when the key stays.
        """
        operator = _operator("map_async", fn, True, True, concurrency, order, timeout, on_timeout, on_error)
        return self._change_key(operator, "KSTREAM-MAP-ASYNC-", name, None)

    @overload
    def map_values_async(
        self,
        fn: Callable[[V], Awaitable[V2]],
        *,
        with_key: Literal[False] = False,
        concurrency: int = 16,
        order: Order = "key",
        timeout: Duration = _TIMEOUT,
        on_timeout: Callable[[V], V2] | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_values_async(
        self,
        fn: Callable[[K, V], Awaitable[V2]],
        *,
        with_key: Literal[True],
        concurrency: int = 16,
        order: Order = "key",
        timeout: Duration = _TIMEOUT,
        on_timeout: Callable[[K, V], V2] | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    def map_values_async(
        self,
        fn: Callable[..., Awaitable[V2]],
        *,
        with_key: bool = False,
        concurrency: int = 16,
        order: Order = "key",
        timeout: Duration = _TIMEOUT,
        on_timeout: Callable[..., V2] | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]:
        """One new value for each record, from a coroutine: ``await fn(value)``, or ``await fn(key, value)``.

        On a worker the coroutines run on Faust's event loop, up to ``concurrency`` records of each partition at a time;
        while they do, the partition takes no more records than that, and others are not held up. In front of the step
        and behind it everything is as if there were one record at a time: results go on in the order in which the records
        came in, of each key (``order="key"``: a slow record holds up only those of its key) or of the partition
        (``order="partition"``). Calls overlap, those of one key too. Offsets are committed only when everything up to
        them has come out, so after a crash some calls are made again, under every guarantee.

        A call that takes longer than ``timeout`` is cancelled; its result is then ``on_timeout(value)`` (or of key and
        value), or without that a ``TimeoutError``. Exceptions are handled as those of every other step
        (``on_error``, or `StreamsConfig.processing_exception_handler`). Timestamps and headers stay; None is a value, and nothing is
        dropped. Stream time is that of the records that came in. Beyond Kafka Streams; Spark refuses it.

        >>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver
        >>> async def greet(name: str) -> str:
        ...     return f"hello {name}"
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> builder.stream("names", key_serde=text, value_serde=text).map_values_async(greet).to("out", value_serde=text)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("names", text, text).pipe_input("k", "world")
        ...     driver.create_output_topic("out", text, text).read_key_value()
        ('k', 'hello world')
        """
        operator = _operator(
            "map_values_async", fn, with_key, False, concurrency, order, timeout, on_timeout, on_error
        )
        return self._change_value(operator, "KSTREAM-MAPVALUES-ASYNC-", name)


def _operator(
    method: str,
    fn: Any,
    with_key: bool,
    pairs: bool,
    concurrency: int,
    order: Order,
    timeout: Duration,
    on_timeout: Any,
    on_error: OnError | None,
) -> AsyncMap:
    takes = 2 if with_key else 1
    require_function(fn, f"{method}()", "a coroutine function (async def)", takes, coroutine=True)
    if on_timeout is not None:
        require_function(on_timeout, f"{method}(on_timeout=...)", "a function that gives the result instead")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise TopologyError(f"{method}(concurrency=...) must be 1 or more, not {concurrency!r}")
    if order not in ("key", "partition"):
        raise TopologyError(f'{method}(order=...) must be "key" or "partition", not {order!r}')
    timeout_ms = to_ms(timeout, f"{method}(timeout=...)")
    if timeout_ms <= 0:
        raise TopologyError(f"{method}(timeout=...) must be longer than 0, not {timeout!r}")
    if isinstance(on_error, Retry):
        raise TopologyError(
            f"{method}() cannot have on_error=Retry: its calls overlap, and a record that waits would be overtaken by calls that have "
            "begun. Try again within the coroutine, or use map_values(on_error=Retry...) with a blocking client"
        )
    answer = answer_of_edge(on_error, f"{method}()", "an asynchronous call")
    return AsyncMap(fn, with_key, pairs, concurrency, order, timeout_ms, on_timeout, answer)
