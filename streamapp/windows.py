"""Window definitions, which say how records of a key are grouped by time.

Each duration is a `datetime.timedelta` or an int of milliseconds. An invalid duration raises `ConfigError` at once.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from streamapp._base.durations import Duration, to_ms
from streamapp._base.names import unknown_attribute
from streamapp.errors import ConfigError, TopologyError

__all__ = [
    "EmitStrategy",
    "JoinWindows",
    "SessionWindows",
    "SlidingWindows",
    "TimeWindows",
    "UnlimitedWindows",
    "Windows",
]

_LEGACY_GRACE_MS = 24 * 60 * 60 * 1000
_FOREVER_MS = 2**63 - 1


class EmitStrategy(Enum):
    """The time at which a windowed aggregation emits a result (KIP-825).

    ``ON_WINDOW_UPDATE`` emits a result for each update of a window. With a record cache, each flush of the cache emits
    only the last update of each window. ``ON_WINDOW_CLOSE`` emits one final result for each window, when the window is
    closed.

    >>> EmitStrategy("on_window_close")
    <EmitStrategy.ON_WINDOW_CLOSE: 'on_window_close'>
    """

    ON_WINDOW_UPDATE = "on_window_update"
    ON_WINDOW_CLOSE = "on_window_close"


class _WindowsType(ABCMeta):
    """Makes an unknown constructor, such as ``TimeWindows.of`` of Java, raise an error that names the right one."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise unknown_attribute(cls, name, {} if name.startswith("_") else _HINTS)


_WITH_GRACE = "say how late records may be: of_size_with_no_grace(size) or of_size_and_grace(size, grace)"
_SESSIONS = (
    "say how late records may be: of_inactivity_gap_with_no_grace(gap) or "
    "of_inactivity_gap_and_grace(gap, grace)"
)
_HINTS = {
    "of_size": _WITH_GRACE,
    "of": _WITH_GRACE,
    "with_gap": _SESSIONS,
    "of_inactivity_gap": _SESSIONS,
    "of_time_difference": "say how late records may be: of_time_difference_with_no_grace(difference) or "
    "of_time_difference_and_grace(difference, grace)",
    "tumbling": "tumbling windows are TimeWindows.of_size_with_no_grace(size)",
    "hopping": "hopping windows are TimeWindows.of_size_with_no_grace(size).advance_by(advance)",
}


class Windows(metaclass=_WindowsType):
    """Windows that follow from a record's timestamp alone. The end of a window is exclusive. (Kafka Streams:
    ``Windows``.)

    `TimeWindows` and `UnlimitedWindows` are such windows. For other windows, derive a class: `windows_for` gives the
    starts of the windows of a timestamp, ``size_ms`` the length and ``grace_ms`` the grace period. All operators,
    stores and serdes then work with these windows.

    >>> class Weeks(Windows):  # from Monday to Sunday; the epoch was a Thursday
    ...     size_ms, grace_ms = 604_800_000, 0
    ...     def windows_for(self, timestamp):
    ...         start = timestamp - (timestamp - 345_600_000) % self.size_ms
    ...         return [start] if start >= 0 else []
    >>> from streamapp.testing import try_out
    >>> try_out(lambda words: words.group_by_key().windowed_by(Weeks()).count(), [("a", "to", 345_600_000)])
    [(Windowed(key='a', start=345600000, end=950400000), 1)]
    """

    size_ms: int
    grace_ms: int
    closes: ClassVar[bool] = True
    """True if a window is closed at some time; False for a window without end."""

    @abstractmethod
    def windows_for(self, timestamp: int) -> Sequence[int]:
        """The starts (ms) of the windows that contain the timestamp, in ascending order, none negative.

        A record for which the list is empty is in no window, and counts neither as late nor as dropped.

        >>> TimeWindows.of_size_with_no_grace(10).windows_for(12)
        [10]
        """

    @property
    def span_ms(self) -> int:
        """The time from the start of a window to its end.

        >>> TimeWindows.of_size_with_no_grace(10).span_ms
        10
        """
        return self.size_ms

    @property
    def tumbling(self) -> bool:
        """True if the windows follow each other without overlap or gap: window n is [n * size, (n + 1) * size).

        The property makes aggregations faster, and changes no result. A class of your own inherits the value False,
        which is right for all windows.

        >>> TimeWindows.of_size_with_no_grace(10).advance_by(5).tumbling
        False
        """
        return False


@dataclass(frozen=True)
class TimeWindows(Windows):
    """Windows of fixed size. Tumbling windows begin at the multiples of their size and do not overlap. Hopping windows
    begin at the multiples of a smaller step (`advance_by`), so they overlap.

    A window contains the timestamps from its start to before its end. A window accepts records until stream time
    reaches its end + grace. Later records of the window are dropped as late. (Kafka Streams: ``TimeWindows``.)

    >>> TimeWindows.of_size_with_no_grace(10).windows_for(25)
    [20]
    >>> TimeWindows.of_size_and_grace(10, grace=2).advance_by(5).windows_for(25)
    [20, 25]
    """

    size_ms: int
    advance_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise ConfigError(f"the window size has to be larger than zero, got {self.size_ms} ms")
        if not 0 < self.advance_ms <= self.size_ms:
            raise ConfigError(
                f"windows of {self.size_ms} ms have to advance by more than zero and at most their size, "
                f"got {self.advance_ms} ms. A larger step would leave gaps between them"
            )
        _not_negative(self.grace_ms, "the grace period")
        _fits(self.size_ms + self.grace_ms, "a window")

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        """Tumbling windows that are closed as soon as stream time reaches their end.

        >>> TimeWindows.of_size_with_no_grace(1000).grace_ms
        0
        """
        return cls.of_size_and_grace(size, 0)

    @classmethod
    def of_size_and_grace(cls, size: Duration, grace: Duration) -> TimeWindows:
        """Tumbling windows that accept out-of-order records until stream time reaches their end + ``grace``.

        >>> from datetime import timedelta
        >>> TimeWindows.of_size_and_grace(timedelta(hours=1), timedelta(minutes=5))
        TimeWindows(size_ms=3600000, advance_ms=3600000, grace_ms=300000)
        """
        size_ms = to_ms(size, "the window size")
        return cls(size_ms, size_ms, to_ms(grace, "the grace period"))

    def advance_by(self, advance: Duration) -> TimeWindows:
        """Hopping windows of the same size: a window begins every ``advance``, so that windows overlap.

        >>> TimeWindows.of_size_with_no_grace(10).advance_by(5).windows_for(12)
        [5, 10]
        """
        return replace(self, advance_ms=to_ms(advance, "the window advance"))

    @property
    def tumbling(self) -> bool:
        """True if the windows do not overlap.

        >>> TimeWindows.of_size_with_no_grace(10).tumbling
        True
        """
        return self.advance_ms == self.size_ms

    def windows_for(self, timestamp: int) -> list[int]:
        """The starts of the windows that contain the timestamp, in ascending order.

        >>> TimeWindows.of_size_with_no_grace(10).windows_for(12)
        [10]
        """
        advance = self.advance_ms
        first = max(0, timestamp - self.size_ms + advance) // advance * advance
        return list(range(first, timestamp + 1, advance))


@dataclass(frozen=True)
class UnlimitedWindows(Windows):
    """One window without end, which contains all records from a start time on. Earlier records are ignored.

    (Kafka Streams: ``UnlimitedWindows``.)

    >>> UnlimitedWindows.of().start_on(100).windows_for(99)
    []
    """

    start_ms: int = 0
    size_ms = _FOREVER_MS
    grace_ms = 0
    closes = False

    @property
    def span_ms(self) -> int:
        """The time from the start to the largest timestamp that fits in 64 bits.

        >>> UnlimitedWindows.of().start_on(7).span_ms == 2**63 - 8
        True
        """
        return _FOREVER_MS - self.start_ms

    def __post_init__(self) -> None:
        _not_negative(to_ms(self.start_ms, "the window start"), "the window start")

    @classmethod
    def of(cls) -> UnlimitedWindows:
        """The window that starts at the epoch.

        >>> UnlimitedWindows.of().windows_for(12)
        [0]
        """
        return cls()

    def start_on(self, start_ms: int) -> UnlimitedWindows:
        """The window that starts at ``start_ms``, milliseconds since the epoch.

        >>> UnlimitedWindows.of().start_on(10).windows_for(12)
        [10]
        """
        return UnlimitedWindows(to_ms(start_ms, "the window start"))

    def windows_for(self, timestamp: int) -> list[int]:
        """A list with the start of the window, or an empty list for a timestamp before the start.

        >>> UnlimitedWindows.of().start_on(10).windows_for(9)
        []
        """
        return [self.start_ms] if timestamp >= self.start_ms else []


@dataclass(frozen=True)
class SlidingWindows(metaclass=_WindowsType):
    """Windows of the length ``difference_ms`` that end at a record, or begin right after a record.

    A record with timestamp t makes two windows: [t - difference, t] ends at the record, and [t + 1, t + 1 + difference]
    starts right after it. Both bounds are inclusive. The second window has a result only if another record is in it. No
    window begins before 0, so records before ``difference_ms`` share the window [0, difference]. A window closes when
    stream time passes its end + grace. (Kafka Streams: ``SlidingWindows``.)

    >>> SlidingWindows.of_time_difference_and_grace(10, grace=5)
    SlidingWindows(difference_ms=10, grace_ms=5)
    """

    difference_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        # A difference of zero is no error here. The first record then raises one, as in Kafka Streams.
        _not_negative(self.difference_ms, "the time difference of sliding windows")
        _not_negative(self.grace_ms, "the grace period")
        _fits(2 * self.difference_ms + self.grace_ms, "two sliding windows")

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> SlidingWindows:
        """Sliding windows of the length ``difference``, which are closed as soon as stream time passes their end.

        >>> SlidingWindows.of_time_difference_with_no_grace(10).grace_ms
        0
        """
        return cls.of_time_difference_and_grace(difference, 0)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> SlidingWindows:
        """Sliding windows of the length ``difference``. A window accepts out-of-order records until stream time passes
        the window's end + ``grace``.

        >>> SlidingWindows.of_time_difference_and_grace(10, grace=5).difference_ms
        10
        """
        return cls(to_ms(difference, "the time difference"), to_ms(grace, "the grace period"))


@dataclass(frozen=True)
class SessionWindows(metaclass=_WindowsType):
    """Sessions: a record joins the session of its key if it is at most ``gap_ms`` away, otherwise it begins a session.

    A record that is within ``gap_ms`` of two sessions merges them. A session reaches from its first to its last record,
    both included. A session is closed when stream time passes its end + gap + grace. (Kafka Streams:
    ``SessionWindows``.)

    >>> SessionWindows.of_inactivity_gap_and_grace(10, grace=5)
    SessionWindows(gap_ms=10, grace_ms=5)
    """

    gap_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        _not_negative(self.gap_ms, "the inactivity gap of sessions")
        _not_negative(self.grace_ms, "the grace period")
        _fits(self.gap_ms + self.grace_ms, "the inactivity gap of sessions")

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, gap: Duration) -> SessionWindows:
        """Sessions that are closed as soon as stream time passes their end + gap.

        >>> SessionWindows.of_inactivity_gap_with_no_grace(10).grace_ms
        0
        """
        return cls.of_inactivity_gap_and_grace(gap, 0)

    @classmethod
    def of_inactivity_gap_and_grace(cls, gap: Duration, grace: Duration) -> SessionWindows:
        """Sessions that accept out-of-order records until stream time passes their end + gap + ``grace``.

        >>> SessionWindows.of_inactivity_gap_and_grace(10, grace=5).gap_ms
        10
        """
        return cls(to_ms(gap, "the inactivity gap"), to_ms(grace, "the grace period"))


@dataclass(frozen=True)
class JoinWindows(metaclass=_WindowsType):
    """The largest distance in time between two records that a stream-stream join puts together.

    A record of the left stream with timestamp t joins the records of the right stream from t - ``before_ms`` to t +
    ``after_ms``, both included. A left or outer join emits a record without a match when stream time passes the end of
    the record's window + grace. The joiner then gets None for the other side. `KStream.outer_join` names the cases in
    which such a record comes out at once. (Kafka Streams: ``JoinWindows``.)

    >>> JoinWindows.of_time_difference_with_no_grace(10).before(0)
    JoinWindows(before_ms=0, after_ms=10, grace_ms=0, legacy=False)
    """

    before_ms: int
    after_ms: int
    grace_ms: int
    legacy: bool = False
    """True for windows that `of` has made. Left and outer joins then emit a record without a match at once, with None
    for the other side. If a match comes later, the pair comes out, too."""

    def __post_init__(self) -> None:
        if self.before_ms + self.after_ms < 0:
            raise ConfigError(
                f"the join window is empty: before ({self.before_ms} ms) + after ({self.after_ms} ms) "
                "must not be negative"
            )
        _not_negative(self.grace_ms, "the grace period")
        _fits(self.size_ms + self.grace_ms, "the join window")

    @property
    def size_ms(self) -> int:
        """The length of the window in ms: before + after.

        >>> JoinWindows.of_time_difference_with_no_grace(10).size_ms
        20
        """
        return self.before_ms + self.after_ms

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> JoinWindows:
        """Joins records that are at most ``difference`` apart. In left and outer joins, a record without a match waits
        until stream time is more than ``difference`` past the record.

        As in Kafka Streams, a difference of 0 joins no records: a window without length and grace has already expired
        when its second record comes. To join records with equal timestamps, use `of_time_difference_and_grace` with a
        grace of at least 1 ms.

        >>> JoinWindows.of_time_difference_with_no_grace(10).grace_ms
        0
        """
        return cls.of_time_difference_and_grace(difference, 0)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> JoinWindows:
        """Joins records that are at most ``difference`` apart. In left and outer joins, a record without a match waits
        until stream time is more than ``difference`` + ``grace`` past the record.

        >>> JoinWindows.of_time_difference_and_grace(10, grace=5).before_ms
        10
        """
        difference_ms = to_ms(difference, "the time difference")
        return cls(difference_ms, difference_ms, to_ms(grace, "the grace period"))

    @classmethod
    def of(cls, difference: Duration) -> JoinWindows:
        """``JoinWindows.of`` as in Kafka Streams 3, where it is deprecated, for topologies that were written in Java.

        The window and its grace period together last at least 24 hours. Left and outer joins emit a record without a
        match at once, with None for the other side. If a match comes later, the pair comes out, too. New topologies use
        `of_time_difference_and_grace`.

        >>> JoinWindows.of(10).grace_ms
        86399980
        """
        difference_ms = to_ms(difference, "the time difference")
        return cls(difference_ms, difference_ms, max(_LEGACY_GRACE_MS - 2 * difference_ms, 0), legacy=True)

    def before(self, difference: Duration) -> JoinWindows:
        """A copy whose window begins ``difference`` before the record. A negative ``difference`` begins the window
        after the record.

        >>> JoinWindows.of_time_difference_with_no_grace(10).before(0).size_ms
        10
        """
        return replace(self, before_ms=to_ms(difference, "the time before"))

    def after(self, difference: Duration) -> JoinWindows:
        """A copy whose window ends ``difference`` after the record. A negative ``difference`` ends the window before
        the record.

        >>> JoinWindows.of_time_difference_with_no_grace(10).after(0).after_ms
        0
        """
        return replace(self, after_ms=to_ms(difference, "the time after"))

    def grace(self, grace: Duration) -> JoinWindows:
        """A copy of the windows with another grace period. Raises `TopologyError` for windows that `of` has not made.

        >>> JoinWindows.of(10).grace(5).grace_ms
        5
        """
        if not self.legacy:
            raise TopologyError(
                "grace() is for windows made by JoinWindows.of; "
                "give the grace period to of_time_difference_and_grace instead"
            )
        return replace(self, grace_ms=to_ms(grace, "the grace period"))


def idle_timeout_ms(timeout: Duration | None) -> int | None:
    """An ``idle_timeout`` in ms: the time without a record after which stream time follows the wall clock."""
    if timeout is None:
        return None
    timeout_ms = to_ms(timeout, "idle_timeout")
    if timeout_ms < 1:
        raise ConfigError(f"idle_timeout has to be at least 1 ms, got {timeout_ms} ms")
    return timeout_ms


def _not_negative(value_ms: int, what: str) -> None:
    if value_ms < 0:
        raise ConfigError(f"{what} must not be negative, got {value_ms} ms")


def _fits(retention_ms: int, what: str) -> None:
    """Raises `ConfigError` if no store could keep its rows for so long."""
    if retention_ms > _FOREVER_MS:
        raise ConfigError(
            f"{what} and the grace period together have to fit in 64 bits of milliseconds, got {retention_ms}"
        )
