"""`JoinedKStream`: the result of a join of two streams, with access to its late records."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar, overload

from streamapp.dsl.context import Context
from streamapp.dsl.graph import Node
from streamapp.dsl.kstream import KStream
from streamapp.dsl.late import Giver, late_stream
from streamapp.errors import TopologyError
from streamapp.serdes.base import Serde

__all__ = ["JoinedKStream"]

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
VR = TypeVar("VR")


class JoinedKStream(KStream[K, VR], Generic[K, VR, V, V2]):
    """The result of a join of two streams with values of types V and V2.

    `late_records` gives the records that came too late for the join.

    >>> from streamapp import JoinWindows
    >>> from streamapp.testing import try_out
    >>> near = JoinWindows.of_time_difference_with_no_grace(10)
    >>> def late_clicks(views, clicks):
    ...     return clicks.join(views, "{} on {}".format, near).late_records("left")
    >>> try_out(late_clicks, [("ann", "home", 100)], [("ann", "buy", 95), ("ann", "sell", 50)])
    [('ann', 'sell')]
    """

    def __init__(
        self,
        context: Context,
        name: str,
        node: Node,
        sources: frozenset[str],
        key_serde: Serde[Any] | None,
        *,
        late_left: tuple[Giver, Serde[Any]],
        late_right: tuple[Giver, Serde[Any]],
    ) -> None:
        super().__init__(context, name, node, sources, key_serde, None)
        self._late = {"left": late_left, "right": late_right}

    @overload
    def late_records(self, side: Literal["left"], *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def late_records(self, side: Literal["right"], *, name: str | None = None) -> KStream[K, V2]: ...
    def late_records(self, side: Literal["left", "right"], *, name: str | None = None) -> KStream[K, Any]:
        """The records of one side that came after their join window was closed, so that pairs may be missing.

        "left" is the stream whose method ``join`` was called, "right" is the argument of this call. When such a record
        comes, stream time is past its timestamp + window + grace. The record comes out of this stream once and
        unchanged. The join also emits the pairs for which the store still has the other record. Records without a key
        or a value never count as late. A second call for a side raises `TopologyError`. Kafka Streams does not tell
        which records are late for a join.

        >>> from streamapp import JoinWindows, StreamsBuilder, StringSerde, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> clicks, views = (builder.stream(t, key_serde=text, value_serde=text) for t in ("clicks", "views"))
        >>> pairs = clicks.join(views, "{} {}".format, JoinWindows.of_time_difference_with_no_grace(10))
        >>> pairs.late_records("left").foreach(lambda key, click: print("too late:", click))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("views", text, text).pipe_input("ann", "page", timestamp=100)
        ...     driver.create_input_topic("clicks", text, text).pipe_input("ann", "button", timestamp=50)
        too late: button
        """
        if side not in self._late:
            raise TopologyError(f'late_records() of {self.name} takes "left" or "right", not {side!r}')
        giver, value_serde = self._late[side]
        return late_stream(self, name, [giver], self.key_serde, value_serde)
