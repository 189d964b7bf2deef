"""`AgentTest`: runs one agent on a few records, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from streamapp._base.counted import counted

__all__ = ["AgentTest", "SentRecord"]

_PATIENCE_SECONDS = 5.0
_STEPS_OF_FAILURE = 20


class SentRecord(NamedTuple):
    """A record that an agent has sent, decoded as a reader of the topic would decode the record."""

    key: Any
    value: Any
    headers: Mapping[str, bytes]
    timestamp: float | None
    """Seconds since the epoch; None: the time of the write."""
    partition: int | None


class AgentTest:
    """Runs one agent on a few records, without a broker: for unit tests.

    The tables of the agent's App are in memory, and begin empty. `sent` has the records that the agent sends with
    ``topic.send``, to the topics of ``sink=``, or to other agents. Records that the agent sends to itself through a
    topic (``group_by``, ``through``) come back to the agent. Other agents do not run. If the agent asks another agent
    (``ask``, ``map``, ``join``), the request is in `sent`. The call then raises `NotImplementedError` at once, because
    no answer can come.

    >>> import asyncio, faust
    >>> app = faust.App("shop", store="memory://")
    >>> orders, receipts = app.topic("orders", key_type=str, value_type=int), app.topic("receipts")
    >>> spent = app.Table("spent", default=int)
    >>> @app.agent(orders)
    ... async def pay(stream):
    ...     async for customer, amount in stream.items():
    ...         spent[customer] += amount
    ...         await receipts.send(key=customer, value={"paid": amount})
    >>> async def test_pay():
    ...     async with AgentTest(pay) as test:
    ...         await test.put(5, key="ann")
    ...         await test.put(7, key="ann")
    ...     print(spent["ann"], [record.value for record in test.sent["receipts"]])
    >>> asyncio.run(test_pay())
    12 [{'paid': 5}, {'paid': 7}]
    """

    def __init__(self, agent: Any) -> None:
        # Faust is imported late, because tests without agents do not need it.
        from streamapp.testing.agent_context import AgentContext

        self._context = AgentContext(agent, SentRecord)
        self.sent: Mapping[str, list[SentRecord]] = self._context.sent
        """The records that the agent has sent, by topic, in order. A topic without records has an empty list."""

    @property
    def results(self) -> list[Any]:
        """The values that the agent has yielded, in order."""
        return self._context.results

    async def put(
        self,
        value: Any = None,
        key: Any = None,
        *,
        timestamp: float | None = None,
        headers: Mapping[str, bytes] | None = None,
        wait: bool = True,
    ) -> None:
        """Gives the agent a record, and waits until the agent has finished with all records.

        ``timestamp`` is in seconds since the epoch (default: now). An agent that collects records (``stream.take``)
        finishes with a record only later. For such an agent, give all records but the last with ``wait=False``.

        Raises the exception of the agent. Raises `TimeoutError` if the agent has not finished after 5 seconds.
        """
        await self._context.put(value, key, timestamp, headers)
        if wait:
            await self._finish()

    async def _finish(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while self._context.open:
                    self._context.raise_failure()
                    await asyncio.sleep(0.001)
        except TimeoutError:
            raise TimeoutError(
                f"the agent has not finished with {counted(self._context.open, 'record')} after "
                f"{_PATIENCE_SECONDS:.0f} s. If the agent collects records (stream.take), give all records but the "
                "last with wait=False"
            ) from None
        # Faust finishes a record first, and handles the exception of the agent some steps later.
        for _ in range(_STEPS_OF_FAILURE):
            await asyncio.sleep(0)
        self._context.raise_failure()

    async def __aenter__(self) -> AgentTest:
        await self._context.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._context.__aexit__(*failure)
        if failure[0] is None:
            self._context.raise_failure()
