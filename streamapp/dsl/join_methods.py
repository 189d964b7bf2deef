"""The joins of a `KStream`, as methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from streamapp._base.callables import require_function
from streamapp._base.durations import Duration
from streamapp.dsl import joins
from streamapp.dsl.global_ktable import GlobalKTable
from streamapp.dsl.joins import StreamJoined
from streamapp.dsl.ktable import KTable
from streamapp.dsl.stream import Described
from streamapp.errors import TopologyError
from streamapp.serdes.base import Serde
from streamapp.windows import JoinWindows

if TYPE_CHECKING:
    from streamapp.dsl.joined import JoinedKStream
    from streamapp.dsl.kstream import KStream

__all__ = ["JoinMethods"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VR = TypeVar("VR")


class JoinMethods(Described[K, V]):
    """What a stream can be joined with, and how."""

    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        stream_joined: StreamJoined | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        stream_joined: StreamJoined | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2], VR],
        *,
        with_key: Literal[False] = False,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2], VR],
        *,
        with_key: Literal[True],
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[V, V2], VR],
        *,
        with_key: Literal[False] = False,
        key_selector: Callable[[K, V], K2],
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[K2, V, V2], VR],
        *,
        with_key: Literal[True],
        key_selector: Callable[[K, V], K2],
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def join(
        self,
        other: KStream[K, V2] | KTable[K, V2] | GlobalKTable[Any, V2],
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        stream_joined: StreamJoined | None = None,
        key_selector: Callable[[K, V], Any] | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Joins each record with matching ones of another stream, or with a row of a table.

        ``joiner(left, right)``, or ``joiner(key, left, right)`` if ``with_key``, makes the result's value. The result keeps the key.

        - With a stream: all pairs with the same key that are as close in time as ``windows`` says. The result has the larger
          timestamp. Two window stores with changelogs; ``stream_joined`` names the join and its stores.
        - With a table: the row of the same key when the record is processed. With ``grace``, for versioned tables, records wait that
          long and are joined with the row as of their timestamp (KIP-923); then records without key are an error. Updates of the table cause no
          results; a result has the record's timestamp.
        - With a global table: the row of ``key_selector(key, value)``; nothing has to be co-partitioned.

        Records without key, value or match are dropped; those without key or value are counted. Where the key may have changed, a
        repartition topic comes first. Late records: see `JoinedKStream.late_records`. (``KStream.join``)

        >>> from streamapp import JoinWindows
        >>> from streamapp.testing import try_out
        >>> near = JoinWindows.of_time_difference_with_no_grace(10)
        >>> def pairs(clicks, views):
        ...     return clicks.join(views, "{} on {}".format, near)
        >>> try_out(pairs, [("ann", "buy", 5), ("bob", "buy", 5)], [("ann", "home", 8), ("bob", "home", 99)])
        [('ann', 'buy on home')]
        >>> def enriched(gates, flights):
        ...     return flights.join(gates.to_table(), lambda tail, flight, gate: f"{tail}: {flight} at {gate}", with_key=True)
        >>> try_out(enriched, [("N1", "A4")], [("N1", "UA1"), ("N2", "UA2")])
        [('N1', 'N1: UA1 at A4')]
        """
        return self._join(
            "inner",
            other,
            joiner,
            windows,
            with_key=with_key,
            stream_joined=stream_joined,
            key_selector=key_selector,
            key_serde=key_serde,
            value_serde=value_serde,
            other_value_serde=other_value_serde,
            grace=grace,
            name=name,
        )

    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2 | None], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        stream_joined: StreamJoined | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2 | None], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        stream_joined: StreamJoined | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], VR],
        *,
        with_key: Literal[False] = False,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2 | None], VR],
        *,
        with_key: Literal[True],
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[V, V2 | None], VR],
        *,
        with_key: Literal[False] = False,
        key_selector: Callable[[K, V], K2],
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[K2, V, V2 | None], VR],
        *,
        with_key: Literal[True],
        key_selector: Callable[[K, V], K2],
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def left_join(
        self,
        other: KStream[K, V2] | KTable[K, V2] | GlobalKTable[Any, V2],
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        stream_joined: StreamJoined | None = None,
        key_selector: Callable[[K, V], Any] | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """As `join`, but records without key or match are kept: the joiner gets None for the right side. (``KStream.leftJoin``, KIP-962)

        With a stream, a record without match comes out once its window is closed (its timestamp + window + grace is before stream
        time), with its own timestamp; one without key at once. With a table, at once. Records without value are dropped and counted.

        >>> from streamapp.testing import try_out
        >>> def enriched(gates, flights):
        ...     return flights.left_join(gates.to_table(), "{} at {}".format)
        >>> try_out(enriched, [("N1", "A4")], [("N1", "UA1"), ("N2", "UA2")])
        [('N1', 'UA1 at A4'), ('N2', 'UA2 at None')]
        """
        return self._join(
            "left",
            other,
            joiner,
            windows,
            with_key=with_key,
            stream_joined=stream_joined,
            key_selector=key_selector,
            key_serde=key_serde,
            value_serde=value_serde,
            other_value_serde=other_value_serde,
            grace=grace,
            name=name,
        )

    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V | None, V2 | None], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        stream_joined: StreamJoined | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V | None, V2 | None], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        stream_joined: StreamJoined | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[..., Any],
        windows: JoinWindows,
        *,
        with_key: bool = False,
        stream_joined: StreamJoined | None = None,
    ) -> KStream[K, Any]:
        """As `join` with a stream, but the records of both sides are kept. (``KStream.outerJoin``, KIP-962)

        Those without match come out with None for the other side, once their window is closed; those without key at once.

        >>> from streamapp import JoinWindows
        >>> from streamapp.testing import try_out
        >>> near = JoinWindows.of_time_difference_with_no_grace(10)
        >>> def pairs(clicks, views):
        ...     return clicks.outer_join(views, "{} on {}".format, near)
        >>> try_out(pairs, [("ann", "buy", 5)], [("bob", "home", 8), ("eve", "home", 99)])
        [('ann', 'buy on None'), ('bob', 'None on home')]
        """
        return self._join("outer", other, joiner, windows, with_key=with_key, stream_joined=stream_joined)

    def _join(
        self,
        kind: Literal["inner", "left", "outer"],
        other: KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: Callable[..., Any],
        windows: JoinWindows | None,
        *,
        with_key: bool,
        stream_joined: StreamJoined | None,
        key_selector: Callable[[Any, Any], Any] | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        other_value_serde: Serde[Any] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        stream = self._context.faces.stream
        assert isinstance(self, stream)
        what = "a joiner of key, left and right value" if with_key else "a joiner of left and right value"
        require_function(
            joiner,
            f"the join of {self.name}",
            what,
            3 if with_key else 2,
            key_option=None if with_key else "with_key",
        )
        if stream_joined is not None and not isinstance(stream_joined, StreamJoined):
            raise TopologyError(
                f"stream_joined of the join of {self.name} is {stream_joined!r}; give StreamJoined(name, store_name)"
            )
        if isinstance(other, stream):
            self._refuse("with a stream", name=name, grace=grace, key_selector=key_selector)
            if windows is None:
                raise TopologyError(
                    f"joining {self.name} with stream {other.name} needs windows: JoinWindows"
                )
            given = stream_joined or StreamJoined(
                key_serde=key_serde, value_serde=value_serde, other_value_serde=other_value_serde
            )
            return joins.join_streams(self, other, joiner, windows, with_key, given, kind)
        self._refuse("with a table", windows=windows, stream_joined=stream_joined)
        if kind == "outer":
            raise TopologyError(f"{self.name} has an outer join with another stream only; use left_join()")
        left = kind == "left"
        if isinstance(other, GlobalKTable):
            self._refuse("with a global table", grace=grace)
            if key_selector is None:
                raise TopologyError(
                    f"joining {self.name} with a global table needs key_selector, a function of key and value"
                )
            return joins.join_global_table(self, other, key_selector, joiner, with_key, left, name)
        if not isinstance(other, KTable):
            raise TopologyError(f"{self.name} joins with a KStream, KTable or GlobalKTable, not {other!r}")
        self._refuse("with a table", key_selector=key_selector)
        return joins.join_table(self, other, joiner, with_key, left, key_serde, value_serde, grace, name)

    def _refuse(self, join: str, **arguments: object) -> None:
        """Arguments of other kinds of joins would have no effect, which is never what was meant."""
        given = [argument for argument, value in arguments.items() if value is not None]
        if given:
            hint = "; name it with stream_joined=StreamJoined(name)" if "name" in given else ""
            raise TopologyError(f"{self.name}: a join {join} takes no {', '.join(given)}{hint}")
