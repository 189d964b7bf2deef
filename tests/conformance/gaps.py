"""What does not hold, and why. A gap that holds after all fails the run, so that this list cannot grow stale.

``GAPS[case or family, level]`` is the reason. A family's gap says that some of its cases do not hold at that
level.
"""

from __future__ import annotations

GAPS: dict[tuple[str, int], str] = {}
