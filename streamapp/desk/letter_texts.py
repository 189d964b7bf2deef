"""`LetterTexts`: keys and values of dead letters as text that people can read and edit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from streamapp.config import StreamsConfig
from streamapp.desk.letters import Letter
from streamapp.desk.readers import Reader
from streamapp.desk.shown import Part, shown
from streamapp.engine.judging import short
from streamapp.errors import SchemaRegistryError, StreamsError
from streamapp.runners.connection import connected
from streamapp.serdes import (
    BooleanSerde,
    BytesSerde,
    ListSerde,
    LocalSchemaRegistry,
    Serde,
    SessionWindowedSerde,
    TimeWindowedSerde,
)
from streamapp.serdes.framing import shown_frame
from streamapp.serdes.schema_registry import SchemaRegistry, default_registry
from streamapp.serdes.value_texts import as_document, parse_text, serde_name, text_form
from streamapp.serdes.writer_schema import WriterSchema, writer_schema

__all__ = ["LetterTexts", "TextRefused"]

_MOST = 2_000
"""The most characters of bytes that are not decoded."""


class TextRefused(StreamsError):
    """A new key or value does not fit its format, or the application cannot read it."""


class _Known(NamedTuple):
    """The facts about the bytes of a key or value."""

    serde: Serde[Any] | None
    """The serde of the part of the application that wrote the letter, if the part is known and decodes bytes."""
    written: WriterSchema | None = None
    """The schema with which the bytes are written."""
    problem: str = ""
    """The reason for which ``serde`` cannot read the bytes."""


class LetterTexts:
    """Makes texts of letters, and bytes of texts. ``readers`` are the parts of the application that read topics.

    Bytes that begin with the id of an Avro or JSON schema are read with this schema, so all their fields are shown. The
    desk asks no registry for parts of the application whose serde has no schemas. All other bytes are read with the
    serde of the part that wrote the letter. Bytes that nothing can read, JSON, and bytes of a serde of your own are
    shown as they are.
    """

    def __init__(self, config: StreamsConfig, readers: Sequence[Reader] = ()) -> None:
        self._config, self._readers = config, readers

    def part(self, letter: Letter, is_key: bool) -> Part:
        """The key or value of a letter as text. Bytes that cannot be read are no error."""
        data = letter.key if is_key else letter.value
        if data is None:
            return Part("null", "null")
        try:
            serde, written, problem = self._known(letter, is_key)
        except SchemaRegistryError as away:
            return Part(shown(data, _MOST), "bytes", short(away))
        if written is not None:
            try:
                return Part(written.text(data), f"{written.form}, {shown_frame(data)}", problem)
            except Exception as error:  # bytes behind the frame that are not the schema's
                return Part(shown(data, _MOST), "bytes", problem or short(error))
        if serde is None or problem or not _is_decoded(serde):
            return Part(shown(data, _MOST), "bytes" if serde is None else serde_name(serde), problem)
        frame = f", {shown_frame(data)}" if serde.framed else ""
        return Part(_text(serde, serde.deserialize(data)), f"{serde_name(serde)}{frame}")

    def bytes_of(self, letter: Letter, is_key: bool, text: str) -> bytes:
        """The bytes of a new key or value, which the user has given as text.

        The new bytes have the schema of the letter's present bytes. Without such a schema, or if the application cannot
        read the present bytes, the application's serde makes the new bytes. For JSON, a serde of your own or an unknown
        serde, the new bytes are the text in UTF-8. Raises `TextRefused` for a text that does not fit,
        and for bytes that the application cannot read. Raises `SchemaRegistryError` if a registry does not answer.
        """
        serde, written, problem = self._known(letter, is_key)
        try:
            if written is not None and not problem:
                form = f"{written.form}, {shown_frame(written.frame)}"
                data = written.bytes_of(text)
            elif serde is not None and _is_decoded(serde):
                form = serde_name(serde)
                data = parse_text(serde, text)[1]
            else:
                form = "text"
                data = text.encode()
        except SchemaRegistryError:
            raise
        except Exception as error:  # a serde of the application may raise anything
            side = _side(is_key)
            raise TextRefused(
                f"letter {letter.id}: the new {side} is no {form}: {short(error)}. `streamapp dlq show` prints the "
                f"{side} in the form that edit takes"
            ) from error
        return self._readable(letter, is_key, serde, data)

    def checked(self, letter: Letter, is_key: bool, data: bytes) -> bytes:
        """The bytes, if the application can read them as this letter's key or value. Raises `TextRefused`."""
        return self._readable(letter, is_key, self._serde(letter, is_key), data)

    def _readable(self, letter: Letter, is_key: bool, serde: Serde[Any] | None, data: bytes) -> bytes:
        if serde is not None and (problem := _problem(serde, data)):
            raise TextRefused(
                f"letter {letter.id}: the application cannot read the new {_side(is_key)}, so the letter is not "
                f"edited: {problem}"
            )
        return data

    def _known(self, letter: Letter, is_key: bool) -> _Known:
        data, serde = letter.key if is_key else letter.value, self._serde(letter, is_key)
        if data is None:
            return _Known(serde)
        registry = self._registry(serde)
        written = None if registry is None else writer_schema(registry, data)
        return _Known(serde, written, "" if serde is None else _problem(serde, data))

    def _serde(self, letter: Letter, is_key: bool) -> Serde[Any] | None:
        for reader in self._readers:
            if reader.wrote(letter):
                serde = reader.serde(letter, is_key)
                return None if isinstance(serde, BytesSerde) else serde
        return None

    def _registry(self, serde: Serde[Any] | None) -> SchemaRegistry | None:
        """The registry to ask for the schema of bytes. None for the bytes of a serde without schemas."""
        if serde is None:
            connected(self._config)  # makes the application's registry the default one
            return default_registry()
        registered = getattr(serde, "registered", None)
        if registered is None:
            return None
        if isinstance(registered.registry, LocalSchemaRegistry):
            registered.written()  # a `LocalSchemaRegistry` learns the serde's own schema only here
        registry: SchemaRegistry = registered.registry
        return registry


def _problem(serde: Serde[Any], data: bytes) -> str:
    """The reason for which a serde cannot read bytes; empty if there is none."""
    try:
        serde.deserialize(data)
    except SchemaRegistryError:
        raise
    except Exception as error:  # a serde of the application may raise anything
        return short(error)
    return ""


def _is_decoded(serde: Serde[Any]) -> bool:
    """True if the text of a value differs from its bytes. False for JSON, and for serdes of the application, which may
    read text of any format."""
    decoded = (BooleanSerde, ListSerde, SessionWindowedSerde, TimeWindowedSerde)
    return serde.framed or isinstance(serde, decoded) or text_form(serde) != "json"


def _text(serde: Serde[Any], value: Any) -> str:
    document = as_document(serde, value)
    plain = isinstance(document, str) and text_form(serde) != "json"
    return document if plain else json.dumps(document, ensure_ascii=False)


def _side(is_key: bool) -> str:
    return "key" if is_key else "value"
