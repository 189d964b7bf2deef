"""Clients that read partitions up to their ends hear of the ends at once."""

from __future__ import annotations

from pathlib import Path

import streamapp
from streamapp.broker.bounded_reads import TO_THE_END

PACKAGE = Path(streamapp.__file__).parent
READ_ON = {"consumer/consume_options.py", "runners/worker/clients.py"}
"""Clients that read for as long as the process runs."""
ONE_RECORD = {"runners/spark/offset_times.py"}
"""Clients that read one record at a time, and wait even less."""


def test_all_clients_that_end_at_the_end_have_these_settings() -> None:
    """The commands of the dead-letter desk waited half a second for each topic that they read."""
    assert TO_THE_END["fetch.wait.max.ms"] < 100
    asking = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if '"enable.partition.eof"' in path.read_text()
    }
    assert asking == {"broker/bounded_reads.py"} | READ_ON | ONE_RECORD
