"""Answers of the group's coordinator whose errors aiokafka does not see."""

from __future__ import annotations

from typing import Any

from aiokafka.errors import for_code

__all__ = ["refuse_failed_offsets"]

_OFFSET_FETCH = 9


def refuse_failed_offsets(client: Any) -> None:
    """Turns a failed OffsetFetch into an error, which makes aiokafka ask again.

    Since KIP-88 the answer as a whole has an error, for example while a coordinator loads the group. Such an answer
    has no partitions. aiokafka looks at the errors of partitions only, and concludes that the group has no offsets. The
    consumer would begin at ``auto_offset_reset``, and repeat or skip records.
    """
    send = client.send

    async def checked(*args: Any, **kwargs: Any) -> Any:
        answer = await send(*args, **kwargs)
        if getattr(answer, "API_KEY", None) == _OFFSET_FETCH and getattr(answer, "error_code", 0):
            raise for_code(answer.error_code)()
        return answer

    client.send = checked
