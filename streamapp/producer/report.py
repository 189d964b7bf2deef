"""Answers of a producer: a record's delivery report, and the errors in place of one."""

from __future__ import annotations

from typing import NamedTuple

from streamapp.errors import BrokerError

__all__ = ["BufferFull", "DeliveryError", "DeliveryReport", "UnsentRecords"]


class DeliveryReport(NamedTuple):
    """The confirmation of a record: brokers have the record, or, if ``spilled``, the local log has it until brokers are
    back.

    ``partition`` and ``offset`` are None for a spilled record. They are also None if a connection broke during the
    commit, because the outcome was then found without them. ``seconds`` is the time from the call of `send` to the
    confirmation.

    >>> DeliveryReport("orders", 2, 81, False, 0.004).offset
    81
    """

    topic: str
    partition: int | None
    offset: int | None
    spilled: bool
    seconds: float


class DeliveryError(BrokerError):
    """A record was not confirmed. ``written`` is False if no topic has the record, and None if this is not known.

    If ``written`` is False, an application may send the record again. If ``written`` is None, a record that is sent
    again may be in the topic twice. ``refused`` is True if brokers refuse each attempt until somebody changes the
    record, the topic or the rights.
    """

    def __init__(self, topic: str, reason: str, written: bool | None, *, refused: bool = False) -> None:
        doubt = (
            "" if written is False else "; nobody knows if the topic has it, so another send may double it"
        )
        super().__init__(f"a record for {topic} was not confirmed: {reason}{doubt}")
        self.topic: str = topic
        self.written: bool | None = written
        self.refused: bool = refused


class BufferFull(BrokerError, BufferError):
    """The producer has not taken a record, because its buffer is full, or too small for the record.

    A full buffer causes this error only with ``when_full="refuse"``, or in a call that cannot wait
    (`ReliableProducer.send_soon`).
    """


class UnsentRecords(BrokerError):
    """A producer stopped with ``count`` records that no broker has confirmed. Their reports are errors."""

    def __init__(self, count: int, what: str) -> None:
        super().__init__(what)
        self.count: int = count
