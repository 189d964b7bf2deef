"""Two accounts on disk."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

from streamapp.producer.ledger import Difference, Ledger


def test_a_ledger_needs_little_memory_and_agrees_with_a_dict(tmp_path: Path) -> None:
    draw = random.Random(7)
    ledger = Ledger(tmp_path / "ledger")
    expected: dict[str, list[int]] = {}
    for number in range(150_000):
        name = f"n{draw.randrange(120_000)}"
        row = expected.setdefault(name, [0, 0])
        if number % 2:
            ledger.expect(name)
            row[0] += 1
        else:
            ledger.find(name)
            row[1] += 1
    wanted = [Difference(name, *row) for name, row in sorted(expected.items()) if row[0] != row[1]]
    assert list(ledger.differences()) == wanted
    tracemalloc.start()
    for number in range(300_000):
        ledger.expect(f"{number:036}")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # 300,000 names in a dict of lists take more than 70 MB.
    assert peak < 40 << 20
    ledger.close()
