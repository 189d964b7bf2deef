"""Merges entries from several partitions and workers into one page of a listing, limited in entries and bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from aiohttp import web
from yarl import URL

from streamapp._base.counted import counted
from streamapp.web.connections import LINE_BYTES
from streamapp.web.problem import BadParameter
from streamapp.web.scan import PAGE_BYTES, Page, row_to_json
from streamapp.web.table_request import Position, Query
from streamapp.web.view_source import TableInfo

__all__ = ["Part", "merged_page", "part_of"]

_PATH_BYTES = LINE_BYTES - 1_024
"""The most bytes of the path of a next page. The other bytes of the line are for the partitions that a worker adds when
it asks another worker."""
Part = dict[str, Any]
"""The part of a page from one partition, or from the partitions of a worker.

``positions`` has a cursor for each of the ``entries``. ``partitions`` has the freshness of each partition. ``more``
is True if there are entries after the last one. For the newest entries, ``scanned`` is the number of entries that
were read."""


def part_of(table: TableInfo, page: Page, freshness: dict[str, Any]) -> Part:
    """The part of one partition, as JSON."""
    return {
        "entries": [row_to_json(table, row) for row in page.rows],
        "positions": [row.position.cursor() for row in page.rows],
        "more": page.more,
        "scanned": page.scanned,
        "partitions": [freshness],
    }


def merged_page(
    request: web.Request, table: TableInfo, query: Query, parts: Sequence[Part], *, as_part: bool
) -> dict[str, Any]:
    """The answer to a request, as JSON. With ``as_part``, the answer has further fields, which another worker needs to
    merge the answer into its own.

    A page ends at ``query.limit`` entries or at `PAGE_BYTES`. A page has at least one entry, if there is any.
    """
    more = any(part["more"] for part in parts)
    found = [pair for part in parts for pair in zip(part["positions"], part["entries"], strict=True)]
    if query.newest:
        found.sort(key=lambda pair: -_time_of(pair[1]))
    else:
        found = _in_order(parts)
        more |= len(found) > query.limit
    complete = not more
    page = _within_bytes(found[: query.limit])
    cut = len(page) < min(query.limit, len(found))
    more |= cut
    body: dict[str, Any] = {
        "table": table.name,
        "entries": [entry for _, entry in page],
        "partitions": sorted(
            (each for part in parts for each in part["partitions"]), key=lambda each: each["partition"]
        ),
    }
    if cut or (more and len(page) < query.limit and not query.newest):
        body["cut_at_bytes"] = PAGE_BYTES
    if query.newest:
        looked_at = [part["scanned"] for part in parts if part["more"] and part["scanned"] is not None]
        scanned = min(looked_at, default=None)
        body |= {"complete": complete} | ({} if scanned is None else {"scanned_per_partition": scanned})
        body |= {"scanned": scanned} if as_part else {}
    else:
        cursor = page[-1][0] if more and page else None
        following = None if cursor is None else _next(request, cursor)
        if following is not None and len(following) > _PATH_BYTES and not as_part:
            raise _too_long(page[-1][0])
        body |= {"cursor": cursor, "next": following}
    if as_part:
        body |= {"positions": [position for position, _ in page], "more": more}
    return body


def _in_order(parts: Iterable[Part]) -> list[tuple[str, dict[str, Any]]]:
    """The entries of all parts in order.

    A part may end although its partitions have more entries. The result then ends at the last entry of this part,
    because the entries that are missing may come next.
    """
    placed = [
        (Position.parse_cursor(cursor), cursor, entry)
        for part in parts
        for cursor, entry in zip(part["positions"], part["entries"], strict=True)
    ]
    ends = [Position.parse_cursor(part["positions"][-1]) for part in parts if part["more"]]
    end = min(ends, default=None)
    placed.sort(key=lambda each: each[0])
    return [(cursor, entry) for position, cursor, entry in placed if end is None or position <= end]


def _within_bytes(entries: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """The first entries, as many as fit into a page. A first entry that is too large is alone on its page."""
    size = 0
    for n, (_, entry) in enumerate(entries):
        size += len(json.dumps(entry, ensure_ascii=False).encode(errors="backslashreplace"))
        if size > PAGE_BYTES:
            return entries[: max(1, n)]
    return entries


def _next(request: web.Request, cursor: str) -> str:
    return str(URL(request.rel_url.raw_path_qs, encoded=True).update_query(cursor=cursor))


def _too_long(cursor: str) -> BadParameter:
    size = counted(len(Position.parse_cursor(cursor).key), "byte")
    return BadParameter(
        "limit",
        f"the page ends at a key of {size}, which is too long for the URL of the next page: choose another limit, so "
        "that the page ends at a shorter key",
    )


def _time_of(entry: dict[str, Any]) -> int:
    times = (entry.get(name) for name in ("timestamp", "end", "start"))
    return next((each for each in times if each is not None), 0)
