"""Keys of tables in URLs: each form that an answer shows can be given in the next request."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from streamapp.serdes import ListSerde, Serde, SessionWindowedSerde, TimeWindowedSerde
from streamapp.serdes.value_texts import parse_text, serde_name, text_form
from streamapp.web.problem import BadParameter

__all__ = ["parse_key"]

_EXAMPLES = {"string": "JFK", "integer": "42", "double": "0.5", "hex": "00ff1a", "uuid": str(UUID(int=1))}


def parse_key(serde: Serde[Any] | None, text: str, parameter: str) -> tuple[Any, bytes]:
    """The key of a URL, and its bytes. Raises `BadParameter`.

    >>> from streamapp import LongSerde
    >>> parse_key(LongSerde(), "258", "key")
    (258, b'\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02')
    """
    try:
        return parse_text(serde, text)
    except Exception as error:  # a serde of the application may raise anything
        kind = text_form(serde)
        expected = f"expected a key of this table ({serde_name(serde)}), written as {kind}"
        raise BadParameter(
            parameter,
            f"{parameter}={text!r:.80}: {expected}: {error}",
            example=_EXAMPLES.get(kind) or _json_example(serde),
        ) from error


def _json_example(serde: Serde[Any] | None) -> str:
    if isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        return '{"key": "JFK", "start": 0, "end": 3600000}'
    if isinstance(serde, ListSerde):
        return "[]"
    return '{"id": 1}'
