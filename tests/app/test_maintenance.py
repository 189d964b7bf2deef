from __future__ import annotations

from agents.maintenance import TOPIC
from agents.topology import DEAD_LETTERS
from streamapp import TopologyTestDriver
from tables.events import KEY, LATE_DEPARTURE, TICKET
from tables.results import Ticket

from .conftest import Flights
from .examples import flight

GROUNDED, IN_THE_AIR, SOLD, NO_REGISTRATION = "N14228", "N12145", "N18557", "N3GVAA"


def tickets(driver: TopologyTestDriver) -> list[Ticket | None]:
    return [ticket for _, ticket in driver.create_output_topic(TOPIC, KEY, TICKET).read_key_values()]


def dead(driver: TopologyTestDriver) -> list[tuple[str, str]]:
    letters = [dict(letter.headers) for letter in driver.produced.get(DEAD_LETTERS, [])]
    return [
        (
            (each["__streamapp.errors.operator"] or b"").decode(),
            (each["__streams.errors.message"] or b"").decode(),
        )
        for each in letters
    ]


def test_a_late_departure_gets_a_ticket(app: Flights, driver: TopologyTestDriver) -> None:
    app.send(flight(dep_delay=75), flight(dep_delay=10))
    assert tickets(driver) == [Ticket(GROUNDED, "UA", 15)]


def test_reports_of_a_plane_in_the_air_wait_in_order_and_others_go_on(
    app: Flights, driver: TopologyTestDriver
) -> None:
    app.send(
        flight(dep_delay=75, tailnum=IN_THE_AIR, flight=1),
        flight(dep_delay=75, tailnum=IN_THE_AIR, flight=2),
        flight(dep_delay=75),
    )
    assert tickets(driver) == [Ticket(GROUNDED, "UA", 15)]
    assert [each.records for each in driver.parked if each.operator == "maintenance"] == [2]
    for _ in range(6):
        driver.advance_wall_clock_time(1_000)
    assert tickets(driver) == [Ticket(IN_THE_AIR, "UA", 1), Ticket(IN_THE_AIR, "UA", 2)]
    assert dead(driver) == []


def test_a_plane_that_was_sold_and_a_number_that_is_none_are_dead_letters(
    app: Flights, driver: TopologyTestDriver
) -> None:
    app.send(flight(dep_delay=75, tailnum=SOLD), flight(dep_delay=75, tailnum=NO_REGISTRATION))
    for _ in range(4):
        driver.advance_wall_clock_time(1_000)
    assert dead(driver) == [
        ("registration", "UA calls a plane N3GVAA, which is no registration"),
        ("maintenance", f"{SOLD} was sold"),
    ]
    letter = driver.produced[DEAD_LETTERS][1]
    assert letter.value is not None
    assert LATE_DEPARTURE.deserialize(letter.value).delay == 75
    assert driver.drops == {("registration", "dead_letter"): 1, ("maintenance", "dead_letter"): 1}
