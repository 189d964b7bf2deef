"""The flights of 2013, as their user does it: Spark has the months until November, a worker takes December while it
arrives, and every table equals Spark's answer for all of it. The backfill is killed at each stage on the way.

    pytest -m slow tests/spark/test_year.py -k autumn       # from October on
    pytest -m slow tests/spark/test_year.py -k year
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..brokers import LightKafka
from .flights import DECEMBER, Flights

pytestmark = [pytest.mark.broker, pytest.mark.slow]

KILLED_AT = ("batch-stage:kill:4", "backfill-computed:kill", "backfill-begun:kill", "backfill-written:kill")


@pytest.fixture
def flights(tmp_path: Path) -> Iterator[Flights]:
    with LightKafka(tmp_path / "kafka", brokers=1, port=0) as kafka:
        yield Flights(kafka.bootstrap_servers, tmp_path)


@pytest.mark.parametrize("since", [(), ("--since", "2013-10-01")], ids=["year", "autumn"])
@pytest.mark.usefixtures("spark")
def test_spark_until_november_and_a_worker_in_december_are_spark_alone(
    flights: Flights, since: tuple[str, ...]
) -> None:
    flights.ingest(*since, "--until", "2013-12-01")
    backfill = "backfill", "agents", "--until", DECEMBER
    assert "Nothing was done: --dry-run." in flights.streamapp(*backfill, "--dry-run")
    for point in KILLED_AT:
        flights.killed(point, *backfill)
    done = flights.streamapp(*backfill)
    assert "An earlier backfill was interrupted while it wrote" in done
    assert "0 results and changelog records written" in done
    assert "You can start workers now" in done
    assert "Nothing to do" in flights.streamapp(*backfill)

    with flights.worker() as worker:
        flights.ingest()
        for table in flights.comparisons(worker):
            assert table.in_worker
            assert not table.differences, (table.table, table.differences[:3])
