"""Faust's router and table pages, with the stores of the topology among the tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from aiohttp import ClientError
from aiohttp.web import HTTPTemporaryRedirect, Response
from faust import web
from faust.app.router import Router
from faust.exceptions import SameNode
from faust.web.apps import tables
from faust.web.exceptions import NotFound, ServiceUnavailable
from yarl import URL

from streamapp.runners.worker.agents.topics import channels_of_agents
from streamapp.runners.worker.faust_names import StoreTable
from streamapp.runners.worker.status import TableInfo
from streamapp.runners.worker.view import StoreNotAvailable
from streamapp.web.cluster import LOGIN, login_headers
from streamapp.web.forwarding import HEADER
from streamapp.web.keys import parse_key
from streamapp.web.problem import BadParameter

HostToPartitionMap = dict[str, dict[str, list[int]]]

__all__ = ["AgentsRouter", "StreamsRouter", "blueprint"]

blueprint: Any = web.Blueprint("tables")

_OF_ONE_HOP = ("Connection", "Keep-Alive", "Content-Length", "Transfer-Encoding")
_NOT_ASKED = (*_OF_ONE_HOP, "Host", HEADER, *LOGIN)
"""The headers that a request to another worker does not take over."""
_NOT_ANSWERED = (*_OF_ONE_HOP, "Content-Encoding")
"""The headers that the answer of another worker does not hand on. Its body has been decompressed."""


class AgentsRouter(Router):  # type: ignore[misc]
    """Finds the worker that has a key of a Faust table, for ``@app.table_route``, ``/table/`` and ``/router/``.

    A row is on the worker of the record that made the row. So the partition follows from the bytes that the key has in
    the topics of agents. Faust's own router takes the bytes of the changelog, which has its keys as JSON.
    """

    def key_store(self, table_name: str, key: Any) -> URL:
        """The address of the worker that has the key.

        For a global table, this is the asked worker itself. Raises `KeyError` if no worker has the partition of the
        key now; Faust then answers 503. Raises `ServiceUnavailable` if agents read topics with different key
        serializers, and the different bytes of the key lead to different workers.
        """
        table = self._get_table(table_name)
        if table.is_global:
            return URL(self.app.conf.canonical_url)
        topic = self._get_table_topic(table)
        owners: set[URL] = {self._assignor.key_store(topic, data) for data in self._encodings(table, key)}
        if len(owners) > 1:
            raise ServiceUnavailable(
                f"agents read topics whose keys have different serializers, so the worker of the key {key!r} is not "
                f"known. Give these topics the same key_serializer, or make {table_name} a table of the topology"
            )
        return owners.pop()

    async def route_req(self, table_name: str, key: Any, web: Any, request: Any) -> Any:
        """The answer of the worker that has the key. Raises `SameNode` if this worker has the key.

        Raises `ServiceUnavailable` while this worker restores its tables, and if the other worker does not answer.
        """
        try:
            return await super().route_req(table_name, key, web, request)
        except SameNode:
            if self.app.tables.restoring and not isinstance(self._get_table(table_name), StoreTable):
                raise ServiceUnavailable("this worker restores its tables: ask again later") from None
            raise

    def _encodings(self, table: Any, key: Any) -> set[bytes]:
        """The bytes that records with this key have in the topics of agents."""
        found = {channel.prepare_key(key, None)[0] for channel in channels_of_agents(self.app)}
        return found or {self._get_serialized_key(table, key)}

    async def _route_req(self, dest_url: URL, web: Any, request: Any) -> Any:
        """Sends a request on to the worker at ``dest_url``, and returns the answer of the other worker.

        Faust would send all headers of the request, with the login of its client and the host name of this worker. The
        body of the request would be missing, and each answer would become text. Raises `ServiceUnavailable` if the
        other worker does not answer.
        """
        if self._urlident(dest_url) == self._urlident(self.app.conf.canonical_url):
            raise SameNode
        worker = str(dest_url).rstrip("/")
        url = URL(worker + request.rel_url.raw_path_qs, encoded=True)
        headers = _without(request.headers, _NOT_ASKED)
        headers.update(login_headers(request, web.signatures, request.method, worker, url))
        data = await request.read() if request.can_read_body else None
        session = self.app.http_client
        try:
            async with session.request(
                request.method, url, headers=headers, data=data, ssl=web.client_context, allow_redirects=False
            ) as answer:
                answered = _without(answer.headers, _NOT_ANSWERED)
                return Response(body=await answer.read(), status=answer.status, headers=answered)
        except (ClientError, TimeoutError) as error:
            raise ServiceUnavailable(
                f"the worker at {dest_url}, which has the key, does not answer: ask again later"
            ) from error

    def _get_table(self, name: str) -> Any:
        try:
            return self.app.tables[name]
        except KeyError:
            raise NotFound(f"there is no table {name!r}") from None


def _without(headers: Any, names: Iterable[str]) -> Any:
    """A copy of the headers without those of the names."""
    kept = headers.copy()
    for name in names:
        kept.popall(name, None)
    return kept


class StreamsRouter(AgentsRouter):
    """Finds the worker that has a key of a Faust table or of a topology's store, for ``@app.table_route``."""

    def key_store(self, table_name: str, key: Any) -> URL:
        """The address of the worker that has the key, as in `AgentsRouter`."""
        table = self._get_table(table_name)
        if not isinstance(table, StoreTable):
            return super().key_store(table_name, key)
        try:
            data = _key_bytes(table, key)
            _, owner, local = self.app.streams.owner(table_name, data)
        except BadParameter as error:
            raise NotFound(str(error)) from error
        except StoreNotAvailable as error:
            raise ServiceUnavailable(str(error)) from error
        if owner is None:
            raise KeyError(key)
        return URL(self.app.conf.canonical_url if local else owner)

    def table_metadata(self, table_name: str) -> HostToPartitionMap:
        """The partitions of a table that each worker has: address of the worker -> topic -> partitions."""
        table = self._get_table(table_name)
        if not isinstance(table, StoreTable):
            return super().table_metadata(table_name)  # type: ignore[no-any-return]
        return _hosts(self.app.streams.tables()[table_name])

    def tables_metadata(self) -> HostToPartitionMap:
        """The partitions of all tables that each worker has: address of the worker -> topic -> partitions."""
        found = {host: dict(topics) for host, topics in super().tables_metadata().items()}
        for info in self.app.streams.tables().values():
            for host, topics in _hosts(info).items():
                found.setdefault(host, {}).update(topics)
        return found


def _key_bytes(table: StoreTable, key: Any) -> bytes:
    serde = table.spec.key_serde
    if isinstance(key, str):  # out of a URL
        return parse_key(serde, key, "key")[1]
    return key if serde is None else serde.serialize(key)


def _hosts(info: TableInfo) -> HostToPartitionMap:
    """Address of each worker -> topic -> partitions of a store.

    The topic is the changelog, or for a store without a changelog the first source topic.
    """
    topic = info.topic or info.source_topics[0]
    hosts: HostToPartitionMap = {}
    for partition, owner in info.owners.items():
        if owner is not None:
            hosts.setdefault(owner, {}).setdefault(topic, []).append(partition)
    return hosts


class _TableKeyDetail(tables.TableKeyDetail):  # type: ignore[misc]
    async def get(self, request: Any, name: str, key: str) -> Any:
        table = self.get_table_or_404(name)
        if isinstance(table, StoreTable):
            raise HTTPTemporaryRedirect(f"/tables/{quote(name, safe='')}/{quote(key, safe='')}")
        try:
            return await self.app.router.route_req(name, key, self.web, request)
        except SameNode:
            if key not in table:  # Faust would answer with the default value of the table
                raise NotFound(
                    f"the worker that has the partition of {key!r} has no such key in {name}"
                ) from None
            return self.json(table[key])


blueprint.route("/", name="list")(tables.TableList)
blueprint.route("/{name}/", name="detail")(tables.TableDetail)
blueprint.route("/{name}/{key}/", name="key-detail")(_TableKeyDetail)
