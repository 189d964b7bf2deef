"""Fixtures for pytest, which finds them by itself: `streams_driver`, `streams_broker`, `streams_worker`.

def test_upper(streams_driver):
    driver = streams_driver(describe)
    driver.create_input_topic("in", StringSerde(), StringSerde()).pipe_input("k", "hello")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streamapp.broker import LocalKafka
    from streamapp.config import StreamsConfig
    from streamapp.dsl import StreamsBuilder
    from streamapp.runners.local import TopologyTestDriver
    from streamapp.testing.worker import WorkerProcess
    from streamapp.topology import Topology

__all__ = ["streams_broker", "streams_driver", "streams_worker"]


@pytest.fixture
def streams_driver() -> Iterator[Callable[..., TopologyTestDriver]]:
    """A function that opens a `TopologyTestDriver`. All drivers close after the test.

    The call is ``streams_driver(topology, config=None, *, initial_wall_clock_ms=0)``. ``topology`` is a `Topology` or a
    function of a `StreamsBuilder`, as `App` takes it.
    """
    from streamapp.dsl import StreamsBuilder
    from streamapp.runners.local import TopologyTestDriver

    with ExitStack() as opened:

        def open_driver(
            topology: Topology | Callable[[StreamsBuilder], object],
            config: StreamsConfig | None = None,
            *,
            initial_wall_clock_ms: int = 0,
        ) -> TopologyTestDriver:
            if callable(topology):
                builder = StreamsBuilder(config)
                topology(builder)
                topology = builder.build()
            driver = TopologyTestDriver(topology, config, initial_wall_clock_ms=initial_wall_clock_ms)
            return opened.enter_context(driver)

        yield open_driver


@pytest.fixture(scope="session")
def streams_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A real Kafka on a free port, which all tests of the session share: ``streams_broker.bootstrap_servers``.

    Because tests share the broker, each test needs its own names of topics and applications. The broker needs Java, and
    the first download of Kafka needs the extra ``spark``. If one of these is missing, the fixture raises `BrokerError`,
    which says what to install.
    """
    from streamapp.broker import LocalKafka

    with LocalKafka(tmp_path_factory.mktemp("streams-broker"), brokers=1, port=0) as broker:
        yield broker


@pytest.fixture
def streams_worker(streams_broker: LocalKafka, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """A function that starts a worker process on `streams_broker`, and waits until its tables can be read.

    The call is ``streams_worker(application, web_port=None, environ=None)``. ``application`` is a module or an object
    in it, as ``faust -A`` takes it. Without ``web_port`` the worker gets a free port. ``environ`` has further
    environment variables. The worker finds the broker by ``STREAMAPP_BOOTSTRAP_SERVERS``, so the application must not
    give ``bootstrap_servers``. At the end of the test, each worker that still runs commits and stops.
    """
    from streamapp.broker.ports import free_port
    from streamapp.testing.worker import WorkerProcess

    with ExitStack() as opened:

        def start(
            application: str, web_port: int | None = None, environ: dict[str, str] | None = None
        ) -> WorkerProcess:
            port = web_port or free_port()
            folder = tmp_path / f"worker-{port}"
            worker = WorkerProcess(
                application,
                web_port=port,
                log=folder / "worker.log",
                datadir=folder,
                environ={
                    "STREAMAPP_BOOTSTRAP_SERVERS": streams_broker.bootstrap_servers,
                    **(environ or {}),
                },
            )
            opened.enter_context(worker)
            worker.wait_until_ready()
            return worker

        yield start
