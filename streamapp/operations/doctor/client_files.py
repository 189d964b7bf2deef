"""Settings of producers and consumers outside the application, each in a file with Kafka's names of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from streamapp.errors import ConfigError

__all__ = ["ClientFile"]

_JAVA = {
    "acks": "all",
    "enable.idempotence": "true",
    "isolation.level": "read_uncommitted",
    "enable.auto.commit": "true",
    "auto.offset.reset": "latest",
    "max.poll.interval.ms": "300000",
    "session.timeout.ms": "45000",
    "retries": "2147483647",
}
_LIBRDKAFKA = _JAVA | {
    "enable.auto.offset.store": "true",
    "enable.idempotence": "false",
    "isolation.level": "read_committed",
}
_ALIASES = {"request.required.acks": "acks", "message.send.max.retries": "retries"}
_OF_JAVA = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")


@dataclass(frozen=True)
class ClientFile:
    """A producer or consumer, as a ``.properties`` file describes it.

    If the file names a serializer or deserializer, the doctor assumes the defaults of Java's client. For any other
    file, the doctor assumes librdkafka's defaults.

    >>> file = ClientFile.parse("producer", "feeder", "acks=1")
    >>> file["acks"], file["enable.idempotence"], file.said("acks")
    ('1', 'false', 'acks=1')
    """

    role: Literal["producer", "consumer"]
    name: str
    given: Mapping[str, str]

    @classmethod
    def parse(cls, role: Literal["producer", "consumer"], name: str, text: str) -> ClientFile:
        given = {}
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if not line or line[0] in "#!":
                continue
            setting, found, value = line.partition("=")
            if not found:
                raise ConfigError(
                    f"line {number} of {name} is not NAME=VALUE"
                )  # not shown: it may be a secret
            setting = setting.strip()
            given[_ALIASES.get(setting, setting)] = value.strip()
        return cls(role, name, given)

    @property
    def java(self) -> bool:
        """True if the client is Java's, and not one of librdkafka."""
        return any(name in self.given for name in _OF_JAVA)

    def __getitem__(self, setting: str) -> str:
        defaults = _JAVA if self.java else _LIBRDKAFKA
        value = self.given.get(setting, defaults[setting]).lower()
        return "all" if setting == "acks" and value == "-1" else value

    def said(self, setting: str) -> str:
        """The setting with its value, such as ``acks=1``, and a remark if the value is the default of the client
        library."""
        default = "" if setting in self.given else " (the default of its library)"
        return f"{setting}={self[setting]}{default}"
