"""`Context`: the state of one `StreamsBuilder`, which all its streams and tables share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamapp.config import StreamsConfig
from streamapp.dsl.graph import Graph
from streamapp.dsl.naming import Names
from streamapp.errors import TopologyError
from streamapp.serdes.base import Serde, check_serde
from streamapp.state.spec import StoreSpec

if TYPE_CHECKING:
    from streamapp.dsl.grouped import KGroupedTable
    from streamapp.dsl.joined import JoinedKStream
    from streamapp.dsl.kstream import KStream
    from streamapp.dsl.ktable import KTable

__all__ = ["Context", "Faces"]


@dataclass(frozen=True)
class Faces:
    """The public classes of the streams and tables that operators return, for example `KStream`.

    The modules of the operators find the classes here, because direct imports would be circular.
    """

    stream: type[KStream[Any, Any]]
    joined_stream: type[JoinedKStream[Any, Any, Any, Any]]
    table: type[KTable[Any, Any]]
    grouped_table: type[KGroupedTable[Any, Any]]


class Context:
    """The configuration, the names and the graph of one `StreamsBuilder`."""

    def __init__(self, config: StreamsConfig, faces: Faces) -> None:
        self.config: StreamsConfig = config
        self.faces: Faces = faces
        self.names: Names = Names()
        self.graph: Graph = Graph()
        self.stores: dict[str, StoreSpec] = {}
        """The stores that tables and joins have so far, by name."""

    def key_serde(self, serde: Serde[Any] | None, operator: str) -> Serde[Any]:
        """The serde, or the configured default; `TopologyError` if there is neither."""
        return _required(serde, self.config.default_key_serde, "key", operator)

    def value_serde(self, serde: Serde[Any] | None, operator: str) -> Serde[Any]:
        """The serde, or the configured default; `TopologyError` if there is neither."""
        return _required(serde, self.config.default_value_serde, "value", operator)


def _required(serde: Serde[Any] | None, default: Serde[Any] | None, part: str, operator: str) -> Serde[Any]:
    found = serde if serde is not None else default
    if found is None:
        raise TopologyError(
            f"{operator} has to write or read {part}s but knows no serde for them. Give {part}_serde=... "
            f"there (for a table: Materialized({part}_serde=...)), or set default_{part}_serde in the "
            "StreamsConfig that StreamsBuilder gets"
        )
    check_serde(found, f"{part}_serde of {operator}")
    return found
