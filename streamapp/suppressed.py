"""Settings of `KTable.suppress`: the held updates, the time, and the behaviour of a full buffer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from streamapp._base.durations import Duration, to_ms
from streamapp.errors import ConfigError
from streamapp.windows import idle_timeout_ms

__all__ = ["BufferConfig", "Suppressed"]


@dataclass(frozen=True)
class BufferConfig:
    """The limits of a suppression's buffer (None: no limit), and the behaviour of a full buffer.

    ``emit_early`` hands on the oldest results before their time, ``shut_down`` stops the application with an
    error. (Kafka Streams: ``Suppressed.BufferConfig``.)

    >>> BufferConfig.bounded(max_records=1000).when_full
    'emit_early'
    """

    max_records: int | None
    max_bytes: int | None
    when_full: Literal["emit_early", "shut_down"]
    logging: bool = True

    def __post_init__(self) -> None:
        if self.when_full not in ("emit_early", "shut_down"):
            raise ConfigError(f"when_full has to be 'emit_early' or 'shut_down', got {self.when_full!r}")

    @classmethod
    def unbounded(cls) -> BufferConfig:
        """As large as it takes.

        >>> BufferConfig.unbounded().max_records is None
        True
        """
        return cls(None, None, "shut_down")

    @classmethod
    def bounded(
        cls,
        max_records: int | None = None,
        max_bytes: int | None = None,
        when_full: Literal["emit_early", "shut_down"] = "emit_early",
    ) -> BufferConfig:
        """At most so many records and bytes (serialized key, value and record context).

        >>> BufferConfig.bounded(max_bytes=1_000_000, when_full="shut_down").max_bytes
        1000000
        """
        if max_records is None and max_bytes is None:
            raise ConfigError(
                "a bounded buffer needs max_records, max_bytes or both; or use BufferConfig.unbounded()"
            )
        for what, limit in (("max_records", max_records), ("max_bytes", max_bytes)):
            if limit is not None and not isinstance(limit, int):
                raise ConfigError(f"{what} of a bounded buffer has to be an int, not {limit!r}")
        return cls(max_records, max_bytes, when_full)

    def with_logging_disabled(self) -> BufferConfig:
        """The same buffer without changelog: what it holds is lost when a task moves.

        >>> BufferConfig.unbounded().with_logging_disabled().logging
        False
        """
        return replace(self, logging=False)


@dataclass(frozen=True)
class Suppressed:
    """The updates of a table that are held back. Made by `until_window_closes` or `until_time_limit`.

    (Kafka Streams: ``Suppressed``, KIP-328.)

    >>> Suppressed.until_time_limit(1000, BufferConfig.bounded(max_records=100)).until
    'time_limit'
    """

    until: Literal["window_closes", "time_limit"]
    buffer: BufferConfig
    time_limit_ms: int | None = None
    """None for ``window_closes``: the grace period of the windows is used."""
    name: str | None = None
    idle_timeout_ms: int | None = None
    """For ``window_closes``: after this time without an update, time goes on by the wall clock."""

    def __post_init__(self) -> None:
        if not isinstance(self.buffer, BufferConfig):
            raise ConfigError(
                f"a suppression needs BufferConfig.unbounded() or BufferConfig.bounded(...), not {self.buffer!r}"
            )

    @classmethod
    def until_window_closes(
        cls, buffer: BufferConfig, name: str | None = None, *, idle_timeout: Duration | None = None
    ) -> Suppressed:
        """Only the final result of each window, once it is closed. The buffer may not emit early.

        A window is closed when stream time reaches its end + grace, and stream time moves with records only. With
        ``idle_timeout``, beyond Kafka Streams, stream time goes on by the wall clock after this time without a record.
        The windowed aggregation before the suppression goes on, too, and takes no more records for closed windows.

        >>> from datetime import timedelta
        >>> Suppressed.until_window_closes(BufferConfig.unbounded(), idle_timeout=timedelta(minutes=1)).idle_timeout_ms
        60000
        """
        suppressed = cls("window_closes", buffer, None, name, idle_timeout_ms(idle_timeout))
        if buffer.when_full == "emit_early":
            raise ConfigError(
                "until_window_closes emits final results only, so its buffer must not emit early; use "
                "BufferConfig.unbounded() or BufferConfig.bounded(..., when_full='shut_down')"
            )
        return suppressed

    @classmethod
    def until_time_limit(cls, limit: Duration, buffer: BufferConfig, name: str | None = None) -> Suppressed:
        """At most one update per key within ``limit`` of stream time: the last one; negative means zero.

        >>> Suppressed.until_time_limit(1000, BufferConfig.unbounded()).time_limit_ms
        1000
        """
        limit_ms = max(0, to_ms(limit, "the time limit of a suppression"))
        return cls("time_limit", buffer, limit_ms, name)
