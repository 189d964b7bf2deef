"""Settings of `KTable.suppress`: which updates wait, for how long, and what happens when their buffer is full."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from streamapp._base.durations import Duration, to_ms
from streamapp.errors import ConfigError
from streamapp.windows import idle_timeout_ms

__all__ = ["BufferConfig", "Suppressed"]


@dataclass(frozen=True)
class BufferConfig:
    """The limits of the buffer in which `KTable.suppress` holds updates. Each task has a buffer of its own.

    ``max_records`` limits the number of updates, and ``max_bytes`` limits their size. None means no limit. If a limit
    is exceeded, ``when_full`` decides. ``emit_early`` hands on the oldest updates before their time. ``shut_down``
    raises `RecordTooLateError`, in spite of its name the error for a full buffer. This error ends the worker unless
    `processing_exception_handler` decides otherwise. (Kafka Streams: ``Suppressed.BufferConfig``.)

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
        """A buffer without limits. Its size then depends only on the number of keys and windows.

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
        """A buffer of at most ``max_records`` updates and ``max_bytes`` bytes. As in Kafka Streams, the size of an
        update is that of its key, values (new and old), topic and headers.

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
        """A copy of these limits for a buffer without a changelog. Updates in the buffer are lost if the task moves or
        its worker ends.

        >>> BufferConfig.unbounded().with_logging_disabled().logging
        False
        """
        return replace(self, logging=False)


@dataclass(frozen=True)
class Suppressed:
    """The rule by which `KTable.suppress` holds updates back. Made by `until_window_closes` or `until_time_limit`.

    (Kafka Streams: ``Suppressed``, KIP-328.)

    >>> Suppressed.until_time_limit(1000, BufferConfig.bounded(max_records=100)).until
    'time_limit'
    """

    until: Literal["window_closes", "time_limit"]
    buffer: BufferConfig
    time_limit_ms: int | None = None
    """None for ``window_closes``, because the end and the grace period of each window give the time."""
    name: str | None = None
    idle_timeout_ms: int | None = None
    """For ``window_closes``: after this time without an update, stream time follows the wall clock."""

    def __post_init__(self) -> None:
        if not isinstance(self.buffer, BufferConfig):
            raise ConfigError(
                f"a suppression needs BufferConfig.unbounded() or BufferConfig.bounded(...), not {self.buffer!r}"
            )

    @classmethod
    def until_window_closes(
        cls, buffer: BufferConfig, name: str | None = None, *, idle_timeout: Duration | None = None
    ) -> Suppressed:
        """Hands on only the final result of each window, after the window is closed. A buffer with limits needs
        ``when_full="shut_down"``.

        The result comes when stream time reaches the window's end + grace (sessions: end + gap + grace). At exactly
        this time, sliding windows and sessions still accept records, which cause a second result. Only new records move
        stream time, so without records the last window never closes. ``idle_timeout``, which Kafka Streams does not
        have, solves this: after this time without a record, stream time follows the wall clock. The windowed
        aggregation before the suppression follows the same time, so records of a window that was closed in this way are
        late and dropped.

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
        """Holds the updates of a key until stream time is ``limit`` past the timestamp of the first held update. Then
        the last update of the key is handed on.

        The earlier updates of the key are dropped. A negative ``limit`` means zero.

        >>> Suppressed.until_time_limit(1000, BufferConfig.unbounded()).time_limit_ms
        1000
        """
        limit_ms = max(0, to_ms(limit, "the time limit of a suppression"))
        return cls("time_limit", buffer, limit_ms, name)
