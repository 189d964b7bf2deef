"""The DSL: `StreamsBuilder` and the streams and tables that it gives."""

from streamapp.dsl.branched import BranchedKStream
from streamapp.dsl.builder import StreamsBuilder
from streamapp.dsl.cogroup import (
    CogroupedKStream,
    SessionWindowedCogroupedKStream,
    TimeWindowedCogroupedKStream,
)
from streamapp.dsl.global_ktable import GlobalKTable
from streamapp.dsl.grouped import KGroupedStream, KGroupedTable
from streamapp.dsl.joined import JoinedKStream
from streamapp.dsl.kstream import KStream
from streamapp.dsl.ktable import KTable
from streamapp.dsl.late import WindowedKTable
from streamapp.dsl.materialize import Materialized
from streamapp.dsl.stream_joins import StreamJoined
from streamapp.dsl.windowed_streams import SessionWindowedKStream, TimeWindowedKStream

__all__ = [
    "BranchedKStream",
    "CogroupedKStream",
    "GlobalKTable",
    "JoinedKStream",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "Materialized",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "StreamJoined",
    "StreamsBuilder",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "WindowedKTable",
]
