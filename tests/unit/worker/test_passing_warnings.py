"""Warnings of Kafka clients that need no action are left out of a worker's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread

from streamapp.producer import plain_client
from streamapp.runners.worker.agents.consumer_thread import AgentConsumerThread
from streamapp.runners.worker.agents.taken_batches import RecordMoved
from streamapp.runners.worker.control_plane import _ConsumerThread
from streamapp.runners.worker.logs import (
    _CHATTY,
    _FAUST_THREADS,
    _FAUST_TIMES,
    Crashes,
    _Passing,
    quieten_clients,
)

COORDINATOR = "aiokafka.consumer.group_coordinator"


@pytest.fixture
def quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (*_CHATTY, *_FAUST_TIMES, *_FAUST_THREADS)]
    kept = [logger.filters[:] for logger in loggers]
    quieten_clients()
    yield
    for logger, filters in zip(loggers, kept, strict=True):
        logger.filters[:] = filters


@pytest.mark.usefixtures("quiet")
def test_a_rebalance_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(COORDINATOR)
    with caplog.at_level(logging.INFO):
        logger.warning("Heartbeat failed for group %s because it is rebalancing", "shop")
        logger.warning("Heartbeat failed: local member_id was not recognized")
    assert [record.getMessage()[:23] for record in caplog.records] == ["Heartbeat failed: local"]


@pytest.mark.usefixtures("quiet")
def test_rebalances_in_a_row_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Faust's own figures then lack a duration. Nothing else is missing."""
    with caplog.at_level(logging.INFO):
        logging.getLogger("streamapp.app").warning("Missing sensor state for rebalance #%s", 3)
        timers = logging.getLogger("mode.timers")
        for name in ("recovery", "report"):
            timers.warning("Timer %s is overlapping (interval=%r runtime=%r)", name, 0.2, 0.3)
    assert [record.getMessage()[:13] for record in caplog.records] == ["Timer report "]


@pytest.mark.parametrize(("reason", "shown"), [(RecordMoved("moved"), False), (ValueError("wrong"), True)])
def test_an_agent_whose_record_has_moved_is_no_crash(reason: BaseException, shown: bool) -> None:
    """Each rebalance logged an error with a traceback for such an agent."""
    line = logging.LogRecord(
        "agents", logging.ERROR, "", 0, "[^---Agent]: Crashed reason=%r", (reason,), None
    )
    assert Crashes(RecordMoved).filter(line) is shown


@pytest.mark.usefixtures("quiet")
def test_a_producer_of_a_consumer_repeats_itself_only_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While brokers were away, a worker with a function of `App.consume` logged two lines each second."""
    with caplog.at_level(logging.INFO):
        for milliseconds in range(5):
            plain_client._LOGGER.warning(
                "producer: Connect to ipv4#127.0.0.1:1 failed (after %dms)", milliseconds
            )
    assert len(caplog.records) == 1


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("thread", [_ConsumerThread, AgentConsumerThread, AIOKafkaConsumerThread])
def test_a_thread_without_a_turn_is_said_once_in_a_while_with_the_next_step(
    caplog: pytest.LogCaptureFixture, thread: type[AIOKafkaConsumerThread]
) -> None:
    """On a busy machine, Faust says so every six seconds, without end."""
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            thread.logger.error("[^---_ConsumerThread]: Thread keepalive is not responding...")
            thread.logger.error("another error")
    said = [record.getMessage() for record in caplog.records]
    assert said.count("another error") == 5
    (line,) = [each for each in said if each != "another error"]
    assert line.startswith("[^---_ConsumerThread]: Thread keepalive is not responding: ")
    assert "run fewer processes" in line


def test_errors_of_the_first_seconds_are_shown_if_they_last() -> None:
    """The first start on a new cluster logged an error, although the client only had to ask again."""
    now = 0.0
    passing = _Passing(lambda: now)

    def shown(said: str, *args: object, level: int = logging.ERROR) -> bool:
        return bool(passing.filter(logging.LogRecord(COORDINATOR, level, "", 0, said, args, None)))

    away = ("Group Coordinator Request failed: %s", "[Error 15] GroupCoordinatorNotAvailableError")
    missing = ("Topic %s not found in cluster metadata", "shop-seen-changelog")
    unled = (
        "Failed fetch offsets from %s: %s",
        1,
        "[Error 6] NotLeaderForPartitionError: shop-seen-repartition",
    )
    dead = ("Marking the coordinator dead (node %s)for group %s.", 1, "shop")
    ignored = ("Ignoring missing topic: %r", "shop-seen-repartition")
    assert not any(shown(*each) for each in (away, missing, unled))
    assert not any(shown(*each, level=logging.WARNING) for each in (dead, ignored))
    assert shown("Failed fetch offsets from %s: %s", 1, "[Error 29] TopicAuthorizationFailedError: shop")
    assert shown("Group Coordinator Request failed: %s", "[Error 30] GroupAuthorizationFailedError")
    assert shown("Topic %s is not authorized for this client", "shop-seen-changelog")
    now = 11.0
    assert all(shown(*each) for each in (away, missing, unled))
    assert all(shown(*each, level=logging.WARNING) for each in (dead, ignored))


@pytest.mark.usefixtures("quiet")
def test_the_debug_log_has_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        logging.getLogger(COORDINATOR).warning("Heartbeat failed for group shop because it is rebalancing")
    assert len(caplog.records) == 1
