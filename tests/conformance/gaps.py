"""What does not hold, and why. A gap that holds after all fails the run, so that this list cannot grow stale.

``GAPS[case, level]`` is the reason.
"""

from __future__ import annotations

GAPS: dict[tuple[str, int], str] = {}
