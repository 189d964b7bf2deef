"""Records that fail: late departures are reported to a service, which refuses some of them.

Some are tried again later, and others become dead letters. `streamapp dlq list agents` lists the dead letters, and
docs/failures.md tells how to handle them.
"""

from __future__ import annotations

import re
from collections import Counter
from zlib import crc32

from streamapp import Backoff, KStream, Retry
from tables.events import KEY, LATE_DEPARTURE, TICKET
from tables.results import LateDeparture, Ticket

TOPIC = "maintenance-tickets"

REGISTRATION = re.compile("N(?=.{1,5}$)[1-9][0-9]*[A-HJ-NP-Z]{0,2}")
"""A tail number of the United States."""

PATIENTLY = Retry.by_key(
    times=3, backoff=Backoff(200, limit=1_000), key_serde=KEY, value_serde=LATE_DEPARTURE
)
"""While a failed report waits for its next attempt, later reports of the same plane wait, too. Reports of other planes
go on."""


def registered(tailnum: str, late: LateDeparture) -> LateDeparture:
    """The departure unchanged, or an error: some numbers of American and Envoy are not tail numbers of the register."""
    if not REGISTRATION.fullmatch(tailnum):
        raise ValueError(f"{late.carrier} calls a plane {tailnum}, which is no registration")
    return late


class Maintenance:
    """A stand-in for a remote service. Planes in the air fail a few times, and sold planes fail always."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()

    def report(self, tailnum: str, late: LateDeparture) -> Ticket:
        """The ticket for a departure. Raises `LookupError` for a plane that is not there."""
        number = crc32(tailnum.encode())
        self._asked[tailnum] += 1
        if number % 500 == 37:
            raise LookupError(f"{tailnum} was sold")
        if number % 50 == 2 and self._asked[tailnum] <= 2:
            raise LookupError(f"{tailnum} is in the air")
        del self._asked[tailnum]
        return Ticket(tailnum, late.carrier, late.flight)


def maintenance(late: KStream[str, LateDeparture]) -> None:
    # The operator reads a topic of its own. A replay of its dead letters writes to this topic, so no table counts a
    # flight twice.
    reports = late.repartition(key_serde=KEY, value_serde=LATE_DEPARTURE, name="late-planes")
    (
        reports.map_values(registered, with_key=True, on_error="dead_letter", name="registration")
        .map_values(Maintenance().report, with_key=True, on_error=PATIENTLY, name="maintenance")
        .to(TOPIC, key_serde=KEY, value_serde=TICKET, name="maintenance-sink")
    )
