"""`/tables/`: the views of tables. Any worker answers for the whole table: it asks the owners of other partitions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiohttp import web

from streamapp.serdes.value_texts import as_document, serde_name, text_form
from streamapp.web.cluster import Peers
from streamapp.web.pages import Part, merged_page, part_of
from streamapp.web.problem import BadParameter, NotFound, Unavailable, check_repeated, json_response
from streamapp.web.sampler import Sampler
from streamapp.web.scan import COUNT_LIMIT, Page, count, get, read_page, row_to_json
from streamapp.web.status import StatusViews
from streamapp.web.table_request import Query, family, parse_partitions, parse_query, parse_stale
from streamapp.web.view_source import NotAvailable, RestoreStatus, TableInfo, ViewSource

__all__ = ["TableViews"]

R = TypeVar("R")

_HISTORY = {"from", "to", "limit", "cursor"}
"""Parameters that make the answer for a key of a versioned table a list of its versions, instead of the latest one."""
_PAGES_AT_ONCE = 8
"""The most pages that are made at the same time, and the most parts of pages. A page of 4 MiB needs a multiple of its
size in memory meanwhile."""
_REFUSALS = (Unavailable, NotAvailable)
"""A worker cannot answer now, so another one is asked if a stale answer will do."""
_OF_ALL = ("stale", "partitions")
"""Parameters that decide which workers are asked, and not which entries are wanted."""


class TableViews:
    """The handlers of `/tables/`. docs/views.md has the format of each answer. ``read_timeout`` is in seconds."""

    def __init__(
        self,
        source: ViewSource,
        sampler: Sampler,
        status: StatusViews,
        peers: Peers,
        *,
        read_timeout: float = 5.0,
    ) -> None:
        self._source, self._sampler, self._status, self._peers = source, sampler, status, peers
        self._read_timeout = read_timeout
        self._pages = asyncio.Semaphore(_PAGES_AT_ONCE)
        self._parts = asyncio.Semaphore(_PAGES_AT_ONCE)
        """Limits pages that need no other worker, mostly parts of other workers' pages.

        With one limit for all pages, two workers could wait for each other. A frozen worker would also hold up pages
        that do not need its rows.
        """
        self._counts: dict[str, asyncio.Task[dict[str, Any] | None]] = {}
        """The counts under way, by table. Requests that come meanwhile get the same count."""

    async def listing(self, _request: web.Request) -> web.Response:
        tables = sorted(self._source.tables().values(), key=lambda table: table.is_internal)
        described = await asyncio.gather(*(self._describe(table) for table in tables))
        return json_response({"tables": described})

    async def table(self, request: web.Request) -> web.Response:
        """The description of a table. With the parameter ``key``, the answer of `key`; with any other parameter, a page
        of entries."""
        table = self._lookup(request)
        if not request.query:
            return json_response(await self._describe(table))
        if "key" in request.query:
            return await self._key(request, table, request.query["key"])
        query = parse_query(table, _without(request, *_OF_ALL))
        return await self._page(request, table, query, frozenset(table.owners))

    async def key(self, request: web.Request) -> web.Response:
        """The entry of a key, or for window and session tables a page of the key's entries.

        A versioned table gives the latest version, or the version at ``as_of``. With ``from``, ``to``, ``limit`` or
        ``cursor``, a versioned table gives a page of versions.
        """
        return await self._key(request, self._lookup(request), request.match_info["key"])

    async def _key(self, request: web.Request, table: TableInfo, text: str) -> web.Response:
        parameters = _without(request, "key", *_OF_ALL)
        query = parse_query(table, parameters, text)
        assert query.key is not None
        partition = 0 if table.is_global else self._source.partition_for(table.name, query.key.data)
        if family(table) in ("window", "session") or parameters.keys() & _HISTORY:
            return await self._page(request, table, query, frozenset({partition}))
        return await self._entry(request, table, query, partition)

    async def _entry(
        self, request: web.Request, table: TableInfo, query: Query, partition: int
    ) -> web.Response:
        stale = self._refuse_unless_assigned(request)
        asked, this = _asked_here(request, table, {partition}), self._sampler.status.url
        copies = self._copies(table, partition) if stale and asked is None else []
        if asked is not None or partition in table.local:
            workers = [this, *(copy for copy in copies if copy != this)]
        elif copies and table.owners.get(partition) is None:
            workers = copies
        else:
            workers = [self._owner(table, partition), *copies]
        for worker in workers[:-1]:
            try:
                return await self._entry_of(worker, request, table, query, partition, stale)
            except _REFUSALS:
                continue
        return await self._entry_of(workers[-1], request, table, query, partition, stale)

    async def _entry_of(
        self,
        worker: str,
        request: web.Request,
        table: TableInfo,
        query: Query,
        partition: int,
        stale: bool,
    ) -> web.Response:
        """The entry of a key, or its 404, from one worker. Raises one of `_REFUSALS`."""
        if worker != self._sampler.status.url:
            status, body = await self._peers.ask(worker, request, [partition])
            return json_response(body, status)
        row, fresh = await self._read(
            table, partition, lambda store: get(store, table, partition, query), query, stale
        )
        (fresh,) = self._confirmed(table, [fresh], stale)
        if row is None:
            key = as_document(table.key_serde, query.key.value) if query.key else None
            where = f"in partition {partition}, which Kafka's default partitioner chooses"
            if "stale" in fresh:
                where += ": the copy that was read may lack the last changes"
            raise NotFound(f"{table.name} has no entry for key {key!r} {where}", key=key, partitions=[fresh])
        return json_response({"table": table.name} | row_to_json(table, row) | {"partitions": [fresh]})

    async def _page(
        self, request: web.Request, table: TableInfo, query: Query, partitions: frozenset[int]
    ) -> web.Response:
        stale = self._refuse_unless_assigned(request)
        asked = _asked_here(request, table, partitions)
        if asked is None and not partitions <= table.local:
            async with self._place(self._pages):
                parts = await self._all_parts(request, table, query, partitions, stale)
                return json_response(merged_page(request, table, query, parts, as_part=False))
        try:
            async with self._place(self._parts):
                parts = await self._local_parts(table, query, partitions if asked is None else asked, stale)
                return json_response(merged_page(request, table, query, parts, as_part=asked is not None))
        except _REFUSALS:
            if asked is not None or not self._others_have(table, partitions, stale):
                raise
        async with self._place(self._pages):
            parts = await self._parts_elsewhere(request, table, partitions)
            return json_response(merged_page(request, table, query, parts, as_part=False))

    @asynccontextmanager
    async def _place(self, places: asyncio.Semaphore) -> AsyncIterator[None]:
        """Limits how many pages are made at the same time, because each needs memory: waits for a free slot.

        Raises `Unavailable` if no slot is free within ``read_timeout``.
        """
        try:
            await asyncio.wait_for(places.acquire(), self._read_timeout)
        except TimeoutError:
            raise Unavailable(
                "this worker is busy with other pages: ask again later", retry_after=2
            ) from None
        try:
            yield
        finally:
            places.release()

    async def _all_parts(
        self, request: web.Request, table: TableInfo, query: Query, partitions: Collection[int], stale: bool
    ) -> list[Part]:
        """The entries of partitions from all workers that have them."""
        here = table.local.intersection(partitions)
        by_worker: dict[str, list[int]] = defaultdict(list)
        without_owner: list[int] = []
        for partition in sorted(here.symmetric_difference(partitions)):
            if stale and table.owners.get(partition) is None and self._copies(table, partition):
                without_owner.append(partition)
            else:
                by_worker[self._owner(table, partition)].append(partition)
        parts = [
            self._parts_here(request, table, query, here, stale),
            *(
                self._remote_part(worker, request, table, query, ids, stale)
                for worker, ids in by_worker.items()
            ),
        ]
        if without_owner:
            parts.append(self._parts_of_copies(request, table, query, without_owner))
        return [part for found in await asyncio.gather(*parts) for part in found]

    async def _local_parts(
        self, table: TableInfo, query: Query, partitions: Collection[int], stale: bool
    ) -> list[Part]:
        """The entries of local partitions.

        All reads are submitted at once, so that processing is mostly interrupted only once.
        """

        reads = [
            self._read(table, partition, _page_reader(table, partition, query, len(partitions)), query, stale)
            for partition in sorted(partitions)
        ]
        answers = await asyncio.gather(*reads)
        fresh = self._confirmed(table, [before for _, before in answers], stale)
        return [part_of(table, page, each) for (page, _), each in zip(answers, fresh, strict=True)]

    async def _remote_part(
        self,
        worker: str,
        request: web.Request,
        table: TableInfo,
        query: Query,
        partitions: list[int],
        stale: bool,
    ) -> list[Part]:
        """The entries of partitions of another worker.

        With ``stale``, standbys are asked if the worker does not answer or refuses, and if each of the partitions has a
        standby.
        """
        try:
            status, body = await self._peers.ask(worker, request, partitions)
        except Unavailable:
            if not stale or not all(self._copies(table, partition) for partition in partitions):
                raise
            return await self._parts_of_copies(request, table, query, partitions)
        return [_part_in(status, body, f"{worker} has partition {partitions} but")]

    async def _parts_of_copies(
        self, request: web.Request, table: TableInfo, query: Query, partitions: Collection[int]
    ) -> list[Part]:
        """The entries of partitions from their standbys, perhaps on this worker."""
        this = self._sampler.status.url
        here = {partition for partition in partitions if this in self._copies(table, partition)}
        found = await asyncio.gather(
            self._parts_here(request, table, query, here, stale=True),
            self._parts_elsewhere(request, table, here.symmetric_difference(partitions)),
        )
        return [part for parts in found for part in parts]

    async def _parts_here(
        self, request: web.Request, table: TableInfo, query: Query, partitions: Collection[int], stale: bool
    ) -> list[Part]:
        """The entries of local partitions.

        With ``stale``, standbys on other workers are asked if this worker cannot read, and if each of the partitions
        has such a standby.
        """
        try:
            return await self._local_parts(table, query, partitions, stale)
        except _REFUSALS:
            if not self._others_have(table, partitions, stale):
                raise
        return await self._parts_elsewhere(request, table, partitions)

    async def _parts_elsewhere(
        self, request: web.Request, table: TableInfo, partitions: Collection[int]
    ) -> list[Part]:
        """The entries of partitions from their standbys on other workers."""
        # All at once: otherwise a standby that does not answer would cost its time-out for each of its partitions.
        return await asyncio.gather(
            *(self._part_elsewhere(request, table, partition) for partition in sorted(partitions))
        )

    async def _part_elsewhere(self, request: web.Request, table: TableInfo, partition: int) -> Part:
        """The entries of a partition from the first of its standbys on other workers that answers."""
        *others, last = self._elsewhere(table, partition)
        for worker in others:
            try:
                return await self._part_of(worker, request, partition)
            except Unavailable:
                continue
        return await self._part_of(last, request, partition)

    async def _part_of(self, worker: str, request: web.Request, partition: int) -> Part:
        status, body = await self._peers.ask(worker, request, [partition])
        return _part_in(status, body, f"a standby of partition {partition}")

    def _copies(self, table: TableInfo, partition: int) -> list[str]:
        """The workers with a standby of a partition. This worker is the first, if it has a standby."""
        this = self._sampler.status.url
        return sorted(table.standbys.get(partition, ()), key=lambda worker: worker != this)

    def _elsewhere(self, table: TableInfo, partition: int) -> list[str]:
        """The other workers with a standby of a partition."""
        this = self._sampler.status.url
        return [worker for worker in table.standbys.get(partition, ()) if worker != this]

    def _others_have(self, table: TableInfo, partitions: Collection[int], stale: bool) -> bool:
        """True if a stale answer will do, and if each of ``partitions`` has a standby on another worker."""
        return stale and all(self._elsewhere(table, partition) for partition in partitions)

    async def _read(
        self, table: TableInfo, partition: int, fn: Callable[[Any], R], query: Query, stale: bool
    ) -> tuple[R, dict[str, Any]]:
        """The result of a read of a local partition, and the freshness of the partition before the read: positions
        and lag.

        Positions of an open task only grow, so the answer lacks nothing that this freshness promises. `_confirmed`
        replaces the freshness of a task that was opened anew before the read.
        """
        status = self._sampler.status
        if not stale:
            self._refuse_unless_ready(table, partition)
        elif status.state == "stuck":
            raise self._not_running()
        now = self._source.tables()[table.name]
        if partition not in now.local and not stale:
            owner = now.owners.get(partition)
            where = f", but on {owner}" if owner not in (None, status.url) else ""
            raise Unavailable(
                f"partition {partition} of {table.name} is not on {status.url}{where}. A request with the "
                "parameter partitions is not sent on: ask again without this parameter"
            )
        before = self._freshness(table, partition, stale)
        try:
            read = self._source.read(table.name, partition, fn, stale=stale, at_least=query.at_least)
            answer = await asyncio.wait_for(read, self._read_timeout)
        except TimeoutError as error:
            work = self._sampler.look().work or "the thread that processes records"
            raise Unavailable(
                f"partition {partition} of {table.name} could not be read within {self._read_timeout:g} s: "
                f"{work} holds up the read. Ask again later"
            ) from error
        return answer, before

    def _confirmed(
        self, table: TableInfo, before: Sequence[dict[str, Any]], stale: bool
    ) -> list[dict[str, Any]]:
        """The freshness of answers, after all of them were read.

        With ``stale``, a task may have been closed and opened anew before its read. Then nobody knows the changes that
        the answer lacks.
        """
        if not stale:
            return list(before)
        self._sampler.look()
        confirmed = []
        for each in before:
            moved = "stale" not in each and "stale" in self._freshness(table, each["partition"], stale)
            confirmed.append(self._copy(each["partition"], ()) if moved else each)
        return confirmed

    def _lookup(self, request: web.Request) -> TableInfo:
        check_repeated(request)
        tables, name = self._source.tables(), request.match_info["name"]
        if name not in tables:
            listed = ", ".join(sorted(tables)) or "none"
            raise NotFound(f"there is no table {name!r}: the tables are {listed}", tables=sorted(tables))
        return tables[name]

    def _owner(self, table: TableInfo, partition: int) -> str:
        worker = table.owners.get(partition)
        if worker is None:
            raise Unavailable(
                f"partition {partition} of {table.name} has no owner at the moment: ask again later",
                partitions=[partition],
            )
        return worker

    def _refuse_unless_assigned(self, request: web.Request) -> bool:
        """Raises `Unavailable` if this worker has no assignment yet. True if the caller accepts a stale answer."""
        stale = parse_stale(request.query)
        # A worker that restores knows the owners of all partitions, so it can ask them. A starting worker does not.
        # In a rebalance, a worker still has the standbys of the assignment before.
        states = ["running", "restoring"]
        if stale:
            states.append("rebalancing")
            if "partitions" not in request.query:  # standbys of other workers may answer
                states.append("stuck")
        if self._sampler.look().state not in states:
            raise self._not_running()
        return stale

    def _refuse_unless_ready(self, table: TableInfo, partition: int) -> None:
        """Raises `Unavailable` unless the task of this partition runs. Other tasks may still restore their tables."""
        status = self._sampler.status
        if status.state not in ("running", "restoring"):
            raise self._not_running()
        for task in status.tasks:
            if task.state == "restoring" and task.id == f"{table.subtopology}_{partition}":
                progress = self._status.restore_progress(task)
                percent = progress["percent"]
                so_far = "its changelogs are looked up" if percent is None else f"{percent} %"
                raise Unavailable(
                    f"partition {partition} of {table.name} is being restored: {so_far}",
                    retry_after=self._status.retry_after(),
                    state="restoring",
                    partition=partition,
                    restore=progress,
                )

    def _not_running(self) -> Unavailable:
        status = self._sampler.status
        because = f": {status.reason}" if status.reason else ""
        message = f"tables cannot be read while the worker is {status.state}{because}"
        return Unavailable(message, retry_after=self._status.retry_after(), state=status.state)

    def _freshness(self, table: TableInfo, partition: int, stale: bool) -> dict[str, Any]:
        """The freshness of an answer for a partition at the last look: its worker, and the lag of the task or of the
        standby.

        With ``stale``, a task that the worker did not have at the last look may still be in its restore.
        """
        status = self._sampler.status
        about: dict[str, Any] = {"partition": partition, "worker": status.url}
        if table.subtopology is None:
            return about
        copies = [(copy.id, copy.stores) for copy in status.standbys]
        copies += [(task.id, task.restoring) for task in status.tasks if task.state == "restoring"]
        for id, stores in copies:
            if id == f"{table.subtopology}_{partition}":
                return self._copy(partition, stores)
        for task in status.tasks:
            if task.id == f"{table.subtopology}_{partition}":
                lags = [each.lag for each in task.inputs]
                about["positions"] = {f"{each.topic}-{each.partition}": each.position for each in task.inputs}
                about["lag"] = None if None in lags else sum(lag for lag in lags if lag is not None)
                return about
        return self._copy(partition, ()) if stale else about

    def _copy(self, partition: int, stores: Sequence[RestoreStatus]) -> dict[str, Any]:
        """The freshness of an answer from a standby or from a task in its restore.

        Without ``stores``, the copy has just been opened, and its positions are not known yet.
        """
        positions = {f"{each.topic}-{each.partition}": each.position for each in stores}
        lag = sum(each.remaining for each in stores) if stores else None
        return {
            "partition": partition,
            "worker": self._sampler.status.url,
            "stale": True,
            "changelog_positions": positions,
            "changelog_lag": lag,
        }

    async def _describe(self, table: TableInfo) -> dict[str, Any]:
        return {
            "name": table.name,
            "kind": table.kind.persistent_name,
            "readable": family(table) is not None,
            "topic": table.topic,
            "key": serde_name(table.key_serde),
            "key_format": text_form(table.key_serde),
            "value": serde_name(table.value_serde),
            "entries": await self._count(table),
            "inputs": list(table.inputs),
            "global": table.is_global,
            "internal": table.is_internal,
            "partitions": {
                "total": len(table.owners),
                "local": sorted(table.local),
                "owners": {str(partition): url for partition, url in sorted(table.owners.items())},
                "standbys": {
                    str(partition): list(urls) for partition, urls in sorted(table.standbys.items())
                },
            },
        } | ({"window_size_ms": size} if (size := table.kind.window_size_ms) else {})

    async def _count(self, table: TableInfo) -> dict[str, Any] | None:
        """The count of a table. Many requests at the same time cost the data plane as much as one request."""
        count = self._counts.get(table.name)
        if count is None:
            count = self._counts[table.name] = asyncio.create_task(self._new_count(table))
            count.add_done_callback(lambda _: self._counts.pop(table.name, None))
        return await asyncio.shield(count)

    async def _new_count(self, table: TableInfo) -> dict[str, Any] | None:
        """The number of entries in the partitions of this worker. The count of a partition ends at `COUNT_LIMIT`; the
        number is then not ``exact``. None for tables with windows, sessions or versions, and while the partitions
        cannot be read."""
        countable = family(table) == "key_value" and table.local
        if not countable or self._sampler.look().state != "running":
            return None
        reads = (self._source.read(table.name, partition, count) for partition in sorted(table.local))
        try:
            counts = await asyncio.wait_for(asyncio.gather(*reads), min(1.0, self._read_timeout))
        except (NotAvailable, TimeoutError):
            return None
        return {"count": sum(counts), "exact": max(counts) < COUNT_LIMIT}


def _without(request: web.Request, *names: str) -> dict[str, str]:
    """The parameters of a request, without those with these names."""
    return {name: value for name, value in request.query.items() if name not in names}


def _asked_here(request: web.Request, table: TableInfo, partitions: Collection[int]) -> frozenset[int] | None:
    """The partitions for which this worker answers alone; None if the worker may ask other workers."""
    asked = parse_partitions(table, request.query)
    if asked is not None and not asked.issubset(partitions):
        listed = ", ".join(map(str, sorted(partitions)))
        raise BadParameter(
            "partitions",
            f"the key is in partition {listed} of {table.name}: ask for this partition",
            example=listed,
        )
    return asked


def _page_reader(table: TableInfo, partition: int, query: Query, share: int) -> Callable[[Any], Page]:
    return lambda store: read_page(store, table, partition, query, share)


def _part_in(status: int, body: dict[str, Any], who: str) -> Part:
    """The part of a listing that another worker has answered. Raises `Unavailable` for any other answer."""
    if status != 200 or "positions" not in body:
        raise Unavailable(f"{who} answered {status}: {body.get('error')}")
    return body
