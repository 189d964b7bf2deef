"""`Consuming`: the threads of one consumer, from start to end."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import ExitStack

from confluent_kafka import KafkaException

from streamapp._base.repetitions import quieten_drops
from streamapp.consumer.account import ConsumerMetrics, ConsumerStatus
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.handling import Handling
from streamapp.consumer.outputs import HandlerOutputs
from streamapp.consumer.pump import Pump
from streamapp.consumer.sinking import Sinking
from streamapp.consumer.subscription import Subscription
from streamapp.errors import BrokerError, ConfigError
from streamapp.producer import SyncReliableProducer

__all__ = ["Consuming"]

logger: logging.Logger = logging.getLogger(__name__)


class Consuming:
    """One consumer without its public class. `start` may be called once, `stop` from any thread.

    The event `ended` is set after the consumer has stopped or failed.
    """

    def __init__(self, options: ConsumeOptions) -> None:
        self.options: ConsumeOptions = options
        self._dispatcher = Dispatcher(options)
        self._stopping = threading.Event()
        self.ended: threading.Event = threading.Event()
        self._state = "starting"
        self._thread: threading.Thread | None = None

    @property
    def failure(self) -> Exception | None:
        """The error that ended the consumer, or None."""
        return self._dispatcher.failure

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Opens the client of the group and starts the consumer's thread, without waiting for brokers.

        Raises `ConfigError` at a second call.
        """
        options = self.options
        if self._thread is not None:
            raise ConfigError(f"the consumer {options.name} was started already; make another one")
        quieten_drops()
        sinking = None
        if options.offsets is not None:
            sinking = Sinking(options.offsets, options, self._dispatcher, self._stopping)
        outputs = None
        if options.output is not None:
            outputs = HandlerOutputs(options.name, options.output, options.config)
        letters: SyncReliableProducer[bytes, bytes] | None = None
        if options.makes_letters and outputs is None:
            letters = SyncReliableProducer(
                options.name,
                bootstrap_servers=options.config.bootstrap_servers,
                client_properties=options.config.client_properties,
            )
        subscription = Subscription(options, self._dispatcher, sinking, outputs)
        handling = Handling(options, self._dispatcher, letters, sinking, outputs)
        pump = Pump(options, self._dispatcher, handling, loop, subscription.commits.commit_first)
        self._thread = threading.Thread(
            target=self._run, args=(subscription, pump, letters, sinking), name=options.name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Asks the consumer to stop, and returns at once. The consumer's thread gives the handler no more records,
        commits, and sets `ended`."""
        self._stopping.set()
        if self._thread is None:
            self.ended.set()

    def _run(
        self,
        subscription: Subscription,
        pump: Pump,
        letters: SyncReliableProducer[bytes, bytes] | None,
        sinking: Sinking | None,
    ) -> None:
        dispatcher = self._dispatcher
        try:
            if sinking is not None:
                sinking.create()
            if letters is not None:
                letters.__enter__()
            subscription.check_topics()
            pump.start()
            self._state = "running"
            while not self._stopping.is_set() and dispatcher.failure is None:
                subscription.poll()
        except KafkaException as exc:
            dispatcher.fail(BrokerError(f"{self.options.name} cannot go on: {exc.args[0].str()}"))
        except Exception as exc:
            dispatcher.fail(exc)
        self._state = "stopping"
        try:
            with ExitStack() as stack:
                if sinking is not None:
                    stack.callback(sinking.sink.close)
                if letters is not None:
                    stack.callback(letters.__exit__, None, None, None)
                self._end(subscription, pump)
        except Exception as exc:
            dispatcher.fail(exc)
        finally:
            self._state = "stopped" if dispatcher.failure is None else "failed"
            self._stopping.set()
            self.ended.set()

    def _end(self, subscription: Subscription, pump: Pump) -> None:
        """Waits for the calls of the handler that are under way, up to the time-out; commits, and leaves the group."""
        options, dispatcher = self.options, self._dispatcher
        dispatcher.stop()
        seconds = options.close_timeout_ms if dispatcher.failure is None else options.revoke_timeout_ms
        with ExitStack() as stack:
            stack.callback(subscription.close)
            stack.callback(pump.stop)
            stack.callback(subscription.commits.refuse)
            subscription.finish(dispatcher.sources, seconds / 1000)
        dispatcher.forget(dispatcher.sources)

    def metrics(self) -> ConsumerMetrics:
        """The counts at this moment."""
        return self._dispatcher.look()[0]

    def status(self) -> ConsumerStatus:
        """The state of the consumer at this moment, for ``/status``."""
        metrics, partitions, paused = self._dispatcher.look()
        circuit = self._dispatcher.circuit
        running = self._dispatcher.running()
        oldest, seconds = running[0] if running else (None, 0.0)
        failure, unled = self._dispatcher.failure, sorted(self._dispatcher.leaderless)
        lacks = f"waits for a leader of {', '.join(map(str, unled))}" if unled else None
        return ConsumerStatus(
            self.options.name,
            tuple(self.options.topics),
            self._state,
            lacks if failure is None else str(failure),
            partitions,
            metrics,
            circuit.error,
            circuit.since,
            None if oldest is None else f"{oldest.partition.source} at {oldest.items[0].offset}",
            round(seconds, 3),
            paused,
            self.options.output is not None,
            self._dispatcher.lag(),
            {str(tp): each for tp, each in self._dispatcher.removed.found.items()},
        )

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the consumer has ended, and returns True. Returns False if ``seconds`` pass first."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self.ended.is_set():
            left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            if left <= 0:
                return False
            self.ended.wait(left)  # in short steps: signals are answered
        return True
