"""The static types of a case: how its JSON becomes Python values, bytes, and JSON again (SPEC.md, section 2).

A long is an ``int``, a string a ``str``. Values of the types json and bytes have a class of their own,
because the literals of a case have to tell the JSON value ``1`` from the long.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from streamapp import Windowed
from streamapp.errors import SerializationError
from streamapp.serdes import LongSerde, Serde, SessionWindowedSerde, StringSerde, TimeWindowedSerde

__all__ = ["JSON", "LONG", "STRING", "Hex", "Json", "Type", "canonical", "text", "to_json"]

LARGEST_LONG = 2**63 - 1


def canonical(node: Any) -> str:
    """The one text of a JSON value: sorted keys, no spaces, nothing escaped without need."""
    return json.dumps(node, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Json:
    """A value of the type json; equal by its canonical text, never changed in place."""

    __slots__ = ("node", "text")

    def __init__(self, node: Any) -> None:
        self.node = node
        self.text = canonical(node)

    @staticmethod
    def parse(source: str | bytes) -> Json:
        try:
            return Json(json.loads(source, parse_constant=_refuse_constant))
        except ValueError as error:
            raise SerializationError("invalid JSON" if source else "empty JSON") from error

    @property
    def list(self) -> list[Any]:
        assert isinstance(self.node, list)
        return self.node

    def field(self, name: str) -> Any:
        return self.node.get(name) if isinstance(self.node, dict) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Json) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Json({self.text})"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True, slots=True)
class Hex:
    """A value of the type bytes; its text and its JSON are lower-case hex."""

    data: bytes


def text(value: Any) -> str:
    """``s(x)`` of SPEC.md, section 3."""
    match value:
        case None:
            return "null"
        case Json():
            return value.text
        case Hex():
            return value.data.hex()
        case Windowed():
            return f"{text(value.key)}@{value.start}/{value.end}"
        case _:
            return str(value)


def to_json(value: Any) -> Any:
    """A value as it is written in ``expected``; an object of the engine is shown by its class only."""
    match value:
        case None | str() | int():
            return value
        case Json():
            return value.node
        case Hex():
            return value.data.hex()
        case bytes():
            return value.hex()
        case Windowed():
            return {"key": to_json(value.key), "start": value.start, "end": value.end}
        case _:
            return f"<{type(value).__name__}>"


class CaseJsonSerde(Serde[Json]):
    immutable = True

    def serialize(self, value: Json) -> bytes:
        return value.text.encode()

    def deserialize(self, data: bytes) -> Json:
        return Json.parse(data)


class HexSerde(Serde[Hex]):
    immutable = True

    def serialize(self, value: Hex) -> bytes:
        return value.data

    def deserialize(self, data: bytes) -> Hex:
        return Hex(data)


class PickySerde(Serde[str]):
    """A string serde with one text that it refuses to write."""

    immutable = True

    def serialize(self, value: str) -> bytes:
        if value == "unserializable":
            raise SerializationError("cannot serialize: unserializable")
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


@dataclass(frozen=True)
class Type:
    """string, long, json, bytes, picky, or ``windowed`` with the type of the inner key."""

    base: str
    inner: Type | None = None
    session: bool = False
    size_ms: int = LARGEST_LONG

    @staticmethod
    def of(spec: Any, default: str = "string") -> Type:
        if isinstance(spec, dict):
            inner = Type.of(spec.get("inner"))
            return Type("windowed", inner, spec["windowed"] == "session", spec.get("size_ms", LARGEST_LONG))
        return Type(spec or default)

    def windowed_by(self, window: dict[str, Any]) -> Type:
        match window["type"]:
            case "session":
                return Type("windowed", self, session=True)
            case "sliding":
                return Type("windowed", self, size_ms=window["diff_ms"])
            case "unlimited":
                return Type("windowed", self)
            case _:
                return Type("windowed", self, size_ms=window["size_ms"])

    @property
    def spec(self) -> Any:
        if self.inner is None:
            return self.base
        if self.session:
            return {"windowed": "session", "inner": self.inner.spec}
        return {"windowed": "time", "inner": self.inner.spec, "size_ms": self.size_ms}

    @property
    def serde(self) -> Serde[Any]:
        if self.inner is not None:
            if self.session:
                return SessionWindowedSerde(self.inner.serde)
            return TimeWindowedSerde(self.inner.serde, self.size_ms)
        match self.base:
            case "string":
                return StringSerde()
            case "long":
                return LongSerde()
            case "json":
                return CaseJsonSerde()
            case "bytes":
                return HexSerde()
            case "picky":
                return PickySerde()
        raise ValueError(f"unknown serde {self.base}")

    def value(self, node: Any) -> Any:
        """A JSON literal of a case as a value of this type."""
        if node is None:
            return None
        if self.inner is not None:
            return Windowed(self.inner.value(node["key"]), node["start"], node["end"])
        match self.base:
            case "json":
                return Json(node)
            case "bytes":
                return Hex(bytes.fromhex(node))
            case _:
                return node

    def encode(self, node: Any) -> bytes | None:
        """A JSON literal of a case as bytes."""
        return None if node is None else self.serde.serialize(self.value(node))

    def decode(self, data: bytes | None) -> Any:
        """Bytes as they are shown in ``expected``."""
        return None if data is None else to_json(self.serde.deserialize(data))


STRING, LONG, JSON = Type("string"), Type("long"), Type("json")
