"""Windows, join windows and suppress buffers of a case (SPEC.md, section 4)."""

from __future__ import annotations

from typing import Any

from streamapp import BufferConfig, JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

__all__ = ["buffer_config", "join_windows", "windows"]

Spec = dict[str, Any]


def windows(spec: Spec) -> Any:
    kind, grace = spec["type"], spec.get("grace_ms")
    if kind == "unlimited":
        unlimited = UnlimitedWindows.of()
        return unlimited.start_on(spec["start_ms"]) if "start_ms" in spec else unlimited
    if kind == "sliding":
        if grace is None:
            return SlidingWindows.of_time_difference_with_no_grace(spec["diff_ms"])
        return SlidingWindows.of_time_difference_and_grace(spec["diff_ms"], grace)
    if kind == "session":
        if grace is None:
            return SessionWindows.of_inactivity_gap_with_no_grace(spec["gap_ms"])
        return SessionWindows.of_inactivity_gap_and_grace(spec["gap_ms"], grace)
    if grace is None:
        described = TimeWindows.of_size_with_no_grace(spec["size_ms"])
    else:
        described = TimeWindows.of_size_and_grace(spec["size_ms"], grace)
    return described.advance_by(spec["advance_ms"]) if kind == "hopping" else described


def join_windows(spec: Spec) -> JoinWindows:
    difference = spec["diff_ms"] if "diff_ms" in spec else max(spec["before_ms"], spec["after_ms"])
    legacy = spec.get("legacy", False)
    if legacy:
        described = JoinWindows.of(difference)
    elif "grace_ms" in spec:
        described = JoinWindows.of_time_difference_and_grace(difference, spec["grace_ms"])
    else:
        described = JoinWindows.of_time_difference_with_no_grace(difference)
    if "before_ms" in spec:
        described = described.before(spec["before_ms"])
    if "after_ms" in spec:
        described = described.after(spec["after_ms"])
    return described.grace(spec["grace_ms"]) if legacy and "grace_ms" in spec else described


def buffer_config(spec: Spec) -> BufferConfig:
    limits = {limit: spec[limit] for limit in ("max_records", "max_bytes") if limit in spec}
    if limits:
        strict = spec.get("when_full") == "shutdown"
        buffer = BufferConfig.bounded(**limits, when_full="shut_down" if strict else "emit_early")
    else:
        buffer = BufferConfig.unbounded()
    return buffer if spec.get("logging", True) else buffer.with_logging_disabled()
