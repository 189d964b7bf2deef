"""`App`: a Faust application that runs a topology."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar, Unpack

import faust
from faust.exceptions import AlreadyConfiguredWarning, ImproperlyConfigured
from faust.types.settings import Settings, params
from faust.utils.cron import secs_for_next
from faust.web.exceptions import ValidationError
from mode.utils.times import want_seconds
from yarl import URL

from streamapp._base.callables import require_function
from streamapp._base.names import did_you_mean
from streamapp._base.secrets import without_user
from streamapp.broker.librdkafka import check_properties
from streamapp.config import StreamsConfig, check_config
from streamapp.consumer.account import ConsumerStatus
from streamapp.consumer.app_consumers import AppConsumers
from streamapp.consumer.consume_options import ConsumeSettings
from streamapp.dsl import StreamsBuilder
from streamapp.errors import ConfigError
from streamapp.restore_listeners import StandbyUpdateListener, StateRestoreListener
from streamapp.runners.connection import connected, faust_of, faust_servers
from streamapp.runners.worker.agents.assignor import AgentAssignor
from streamapp.runners.worker.agents.consumer import AgentTransport
from streamapp.runners.worker.agents.demands import check_agents
from streamapp.runners.worker.agents.failures import WatchedAgent, WatchedTopic, watched_task
from streamapp.runners.worker.agents.flow import FlowControl
from streamapp.runners.worker.agents.keyed_tables import AgentGlobalTable, AgentTable
from streamapp.runners.worker.agents.recovery import AgentTableManager
from streamapp.runners.worker.agents.replies import Replies
from streamapp.runners.worker.agents.sends import BoundSends
from streamapp.runners.worker.agents.sets import AgentSetGlobalTable, AgentSetTable
from streamapp.runners.worker.agents.state import worker_state
from streamapp.runners.worker.agents.taken_batches import WatchedStream
from streamapp.runners.worker.clients import admin_client, await_brokers, client_id
from streamapp.runners.worker.control_plane import StreamsTransport
from streamapp.runners.worker.faust_names import StreamsTableManager, SubtopologyAgent, register
from streamapp.runners.worker.introduction import introduction
from streamapp.runners.worker.listener_calls import ListenerCalls
from streamapp.runners.worker.logs import quieten_commands
from streamapp.runners.worker.process import StreamsWorker, end_in_time
from streamapp.runners.worker.runtime import StreamsRuntime
from streamapp.runners.worker.watchdog import Watchdog, watch_event_loop
from streamapp.topology import Topology

__all__ = ["COMMAND_LINE_DATADIR", "App"]

logger: logging.Logger = logging.getLogger(__name__)

H = TypeVar("H", bound=Callable[..., Any])


class App(faust.App):  # type: ignore[misc]
    """A Faust application that also runs a topology, beside Faust's agents, timers, pages and tasks.

    ``topology`` is a `Topology`, or a function that takes a `StreamsBuilder` and adds the operators to the builder.
    ``config`` has the settings of Kafka Streams. Its default is the configuration with which a `Topology` was built;
    for a function, the default settings. ``bootstrap_servers`` (``host:port``, several joined by commas) overrides the
    address in ``config``. ``datadir``, the folder of all local data, overrides ``state_dir`` of ``config``. The option
    ``--datadir`` of the command line overrides ``datadir``. An address or a security setting that is not given comes
    from the environment (``STREAMAPP_BOOTSTRAP_SERVERS`` ...). All clients of the application use the same address and
    security (docs/connecting.md).

    ``shutdown_timeout``: the seconds for which a worker that is told to stop waits for its last commit. A process that
    still hangs some seconds later ends with exit code 70.

    ``web_allowed_hosts``: host names by which requests may address the web server, for example ``views.example.com`` or
    ``*.svc.cluster.local``. ``localhost``, IP addresses, and the names of the machine and of ``canonical_url`` are
    always allowed.

    ``state_restore_listener`` and ``standby_update_listener`` follow the restores of stores and the standbys of a
    worker with a topology.

    All other arguments are Faust's settings. ``broker`` means the same as ``bootstrap_servers``, so two different
    addresses are an error.

    Raises `TopologyError` if the topology is not valid, and `ConfigError` for a wrong setting.

    >>> from streamapp import JsonSerde, StringSerde, StreamsBuilder
    >>> def count_flights(builder: StreamsBuilder) -> None:
    ...     builder.stream("flights", key_serde=StringSerde(), value_serde=JsonSerde()).group_by_key().count()
    >>> app = App("flights-by-key", topology=count_flights)
    >>> app.streams.state
    'starting'
    """

    def __init__(
        self,
        id: str,
        *,
        topology: Topology | Callable[[StreamsBuilder], Any] | None = None,
        config: StreamsConfig | None = None,
        bootstrap_servers: str | None = None,
        datadir: str | Path | None = None,
        shutdown_timeout: float = 30.0,
        web_allowed_hosts: Collection[str] = (),
        state_restore_listener: StateRestoreListener | None = None,
        standby_update_listener: StandbyUpdateListener | None = None,
        **settings: Any,
    ) -> None:
        if config is None and isinstance(topology, Topology):
            config = topology.plan().config  # what its builder was given
        quieten_commands()
        check_config(config, "App")
        _check_settings(settings)
        if not _is_number(shutdown_timeout) or not 0 <= shutdown_timeout < math.inf:
            raise ConfigError(f"shutdown_timeout has to be a number of seconds, not {shutdown_timeout!r}")
        _check_hosts(web_allowed_hosts)
        listeners = _listeners(topology, state_restore_listener, standby_update_listener)
        datadir = os.environ.get(COMMAND_LINE_DATADIR) or datadir
        config = _config(id, config, bootstrap_servers, datadir)
        if isinstance(topology, Topology):
            config = topology.plan(config).config
        if config.bootstrap_servers is None and settings.get("broker") is not None:
            config = config.replace(bootstrap_servers=faust_servers(settings["broker"]))
        check_properties(config.client_properties)
        self.config: StreamsConfig = connected(config)
        built = None if topology is None else _build(topology, self.config)
        plan = None if built is None else built.plan(self.config)
        settings |= faust_of(self.config, settings)
        kept = _AGENT_SETTINGS if plan is None else _TOPOLOGY_SETTINGS
        if plan is not None and not plan.subtopologies:
            # The leader is the worker with the first task. Without tasks, Faust finds the leader by a topic of its own.
            kept = kept | {"topic_disable_leader": False}
        settings = {**_faust_settings(self.config, settings), **kept, **settings}
        if datadir is not None:
            settings["datadir"] = str(datadir)
        if topology is not None and settings.get("table_standby_replicas") == 0:
            raise ConfigError(
                "table_standby_replicas=0 makes Faust bypass the assignor that keeps the partitions of a "
                "task together. Leave the setting at 1; only tables of plain Faust use it"
            )
        if self.config.exactly_once and settings.get("producer_partitioner") is not None:
            raise ConfigError(
                "producer_partitioner has no effect on the records that agents send with exactly_once_v2: give "
                "topic.send a partition instead"
            )
        self._has_datadir = settings.get("datadir") is not None
        self._streams: StreamsRuntime | None = None
        super().__init__(id, **{"Worker": StreamsWorker, **settings})
        self.topic_replicas: int = _topic_replicas(self.conf, settings, self.config)
        """The number of replicas of a topic that Faust creates, unless the definition of the topic gives a number. -1
        means the brokers' default."""
        self._kept_settings = _kept_settings(self.conf)
        self._shutdown_timeout = shutdown_timeout
        self._attachments = BoundSends(self)
        self._app_consumers = AppConsumers(self)
        self._watchdog: Watchdog | None = None
        """Ends the process if the event loop hangs. None in an application with a topology, whose `StreamsRuntime` has
        a watchdog of its own."""
        if built is not None and plan is not None:
            self._streams = StreamsRuntime(
                self,
                built,
                plan,
                listeners=listeners,
                shutdown_timeout=shutdown_timeout,
            )
            register(self, self._streams.plan)
        if importlib.util.find_spec("streamapp.web") is not None:
            from streamapp.web import server

            install = server.install if topology is not None else server.install_guard
            install(self, allowed_hosts=web_allowed_hosts)

    def consume(
        self, *topics: str, name: str | None = None, **settings: Unpack[ConsumeSettings]
    ) -> Callable[[H], H]:
        """A decorator: the worker calls the function for each record of these topics (docs/consuming.md).

        Records of one key come in order, and a record is committed after the function has returned. With
        ``guarantee="at_most_once"`` a record is committed before the call. With ``batch=`` the function gets lists of
        records. The decorated function itself stays as it is, so tests can call it. The consumer group is
        ``<application id>-<name>``; ``name`` is by default the function's name. ``settings`` are the fields of
        `streamapp.consumer.ConsumeSettings`. Raises `ConfigError` for a wrong setting.

        >>> app = App("payments")
        >>> @app.consume("orders", parallelism=32)
        ... async def charge(order):
        ...     print(order.key, order.value)
        >>> [consumer.name for consumer in app.consumers]
        ['payments-charge']
        """

        def register(handler: H) -> H:
            self._app_consumers.add(topics, handler, name, settings)
            return handler

        return register

    @property
    def consumers(self) -> tuple[ConsumerStatus, ...]:
        """The present status of each consumer that `consume` has added to this worker."""
        return self._app_consumers.statuses

    @property
    def streams(self) -> StreamsRuntime:
        """The running topology of this worker: its status, its tasks, and reads of its tables.

        Raises `AttributeError` for an application without ``topology``.
        """
        if self._streams is None:
            raise AttributeError(
                f"the App {self.conf.id} has no topology, so it has no streams. Give App a topology. The page /status "
                "shows the state of agents and consumers"
            )
        return self._streams

    @property
    def _runs_topology(self) -> bool:
        return self._streams is not None

    @cached_property
    def flow_control(self) -> FlowControl:
        """The part that stops and resumes the flow of records to the queues of agents (Faust: ``App.flow_control``)."""
        return FlowControl(loop=self.loop)

    @cached_property
    def _reply_consumer(self) -> Replies:
        return Replies(self, loop=self.loop, beacon=self.beacon)

    def _new_transport(self) -> Any:
        transport = StreamsTransport if self._runs_topology else AgentTransport
        return transport(self.conf.broker_consumer, self)

    def on_init_dependencies(self) -> Iterable[Any]:
        """Gives settings of the web server back that Faust's command ``worker`` has overwritten (`_kept_settings`)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AlreadyConfiguredWarning)
            for name, value in self._kept_settings.items():
                setattr(self.conf, name, value)
        dependencies: Iterable[Any] = super().on_init_dependencies()
        return dependencies

    async def on_first_start(self) -> None:
        """Raises an error if the web server cannot have its address, before the worker touches folders, topics or
        state."""
        serves = self.boot_strategy._should_enable_web() and self._web_server_service is None
        if serves and hasattr(self.web, "check_port"):
            await self.web.check_port()  # before folders, topics and state: a refused start leaves nothing
        await super().on_first_start()

    async def on_start(self) -> None:
        await super().on_start()
        if self.client_only or self.producer_only:
            return
        if hasattr(self.web, "prepare"):
            self.web.prepare()  # refuses an open web server before the worker joins the group
        # Before topics and state: a refused start leaves nothing.
        check_agents(
            self,
            [agent for agent in self.agents.values() if not isinstance(agent, SubtopologyAgent)],
            self.streams.may_read if self._runs_topology else lambda topic: False,
        )
        if self._runs_topology:
            await self.streams.start()
        else:
            logger.info("%s", introduction(self, None))
            await await_brokers(self.config, admin_client(self.config))
            limit = self.config.max_poll_interval_ms / 1000
            self._watchdog = watch_event_loop(self, limit, self._shutdown_timeout)
        self._app_consumers.start()

    async def on_stop(self) -> None:
        if self._watchdog is not None:
            if worker_state(self)[0] != "failed":
                logger.info("stopping: commits what was processed")
            self._watchdog.close()
        if self.in_worker:
            end_in_time(self._shutdown_timeout)
        stopping = [self._app_consumers.stop(self._shutdown_timeout)]
        if self._runs_topology:
            stopping.append(self.streams.stop())
        if self._consumer is not None and not self.client_only:
            stopping.append(self._consumer.stop_handing_out_for_good(self._shutdown_timeout))
        await asyncio.gather(*stopping)
        await super().on_stop()

    async def on_shutdown(self) -> None:
        await super().on_shutdown()
        if self._watchdog is not None and worker_state(self)[0] != "failed":
            logger.info("stopped")

    def is_leader(self) -> bool:
        """True in at most one worker of the application, which runs the tasks and timers with ``on_leader=True``."""
        has_tasks = self._runs_topology and self.streams.plan.subtopologies
        return self.streams.is_leader() if has_tasks else super().is_leader()

    def _task(self, fun: Callable[..., Any], on_leader: bool = False, traced: bool = False) -> Any:
        return super()._task(watched_task(self, fun), on_leader=on_leader, traced=traced)

    def timer(self, interval: Any, *arguments: Any, **options: Any) -> Any:
        """Faust's timer. Raises `ConfigError` if the interval is not above 0 seconds."""
        if not want_seconds(interval) > 0:
            raise ConfigError(f"app.timer({interval!r}): the interval of a timer is above 0 seconds")
        return super().timer(interval, *arguments, **options)

    def crontab(self, cron_format: str, **options: Any) -> Any:
        """Faust's crontab. Raises `ConfigError` for a text that is no time of cron."""
        try:
            secs_for_next(cron_format)
        except Exception as error:
            raise ConfigError(
                f"app.crontab({cron_format!r}): expected minute, hour, day, month and weekday, as in '30 18 * * *'"
            ) from error
        return super().crontab(cron_format, **options)

    def table_route(self, table: Any, shard_param: str | None = None, **keys: Any) -> Any:
        """Faust's decorator of a page that runs on the worker with the row of a key.

        A request without the parameter that names the key gets 400. Faust would answer 500.
        """
        return _with_key(super().table_route(table, shard_param, **keys), shard_param, **keys)

    def topic_route(self, topic: Any, shard_param: str | None = None, **keys: Any) -> Any:
        """Faust's decorator of a page that runs on the worker with the partition of a key, with the 400 of
        `table_route`."""
        return _with_key(super().topic_route(topic, shard_param, **keys), shard_param, **keys)

    def LiveCheck(self, **kwargs: Any) -> Any:
        """Makes Faust's LiveCheck for this application, which runs end-to-end tests in production.

        LiveCheck is a separate Faust application, and has no topology.
        """
        theirs = {
            name: setting.default for name, setting in Settings.SETTINGS.items() if name in _TOPOLOGY_SETTINGS
        }
        return super().LiveCheck(**{**theirs, **kwargs})

    def _create_directories(self) -> None:
        if not (self._has_datadir or self.tables):
            return  # without tables of Faust, the folder that Faust names after the application would stay empty
        try:
            self.conf.datadir.mkdir(parents=True, exist_ok=True)
            super()._create_directories()
        except OSError as error:
            raise ConfigError(
                f"The folder {self.conf.datadir} cannot be made or written ({error.strerror}). Name another folder "
                "with --datadir."
            ) from error


def _with_key(
    route: Callable[..., Any],
    shard_param: str | None,
    *,
    query_param: str | None = None,
    match_info: str | None = None,
    exact_key: str | None = None,
) -> Callable[..., Any]:
    """A decorator of pages as ``route``, whose pages refuse a request without the parameter of the key."""
    parameter = None if exact_key or match_info else query_param or shard_param
    if parameter is None:
        return route

    def decorate(page: Callable[..., Any]) -> Callable[..., Any]:
        routed = route(page)

        @wraps(page)
        async def checked(view: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            if parameter not in request.query:
                raise ValidationError(
                    f"the parameter {parameter}, which names the key, is missing: {request.path}?{parameter}=KEY"
                )
            return await routed(view, request, *args, **kwargs)

        return checked

    return decorate


COMMAND_LINE_DATADIR = "FAUST_DATADIR"
"""The environment variable in which Faust puts ``--datadir`` of the command line as soon as Faust is imported."""

_AGENT_SETTINGS: dict[str, Any] = {
    "Agent": WatchedAgent,
    "Topic": WatchedTopic,
    "Stream": WatchedStream,
    "TableManager": AgentTableManager,
    "Table": AgentTable,
    "GlobalTable": AgentGlobalTable,
    "SetTable": AgentSetTable,
    "SetGlobalTable": AgentSetGlobalTable,
    "PartitionAssignor": AgentAssignor,
    "Router": "streamapp.web.router.AgentsRouter",
    "HttpClient": "streamapp.web.cluster.open_session",
    "stream_wait_empty": False,  # the consumer waits, and not for ever
}

_TOPOLOGY_SETTINGS: dict[str, Any] = {
    **_AGENT_SETTINGS,
    "Router": "streamapp.web.router.StreamsRouter",
    "TableManager": StreamsTableManager,
    "PartitionAssignor": "streamapp.runners.worker.assignor.StreamsAssignor",
    "topic_disable_leader": True,
}


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for unknown settings and wrong values.

    Faust silently ignores an unknown setting, and its error for a wrong value does not name the setting.
    """
    ours = [field.name for field in fields(StreamsConfig)]
    known = {"monitor", "config_source", "loop", "beacon", *Settings.SETTINGS}
    for name, value in settings.items():
        if name in ours:
            raise ConfigError(
                f"{name} is a setting of StreamsConfig: App(..., config=StreamsConfig(id, {name}=...))"
            )
        if name not in known:
            hint = did_you_mean(name, [*known, *ours, *inspect.signature(App).parameters])
            raise ConfigError(f"App has no setting {name}{hint}")
        _check_value(name, value)


def _topic_replicas(conf: Any, settings: Mapping[str, Any], config: StreamsConfig) -> int:
    """The number of replicas of topics that Faust creates.

    Faust's own default is one replica. The loss of one broker would then stop the agents' tables, and could lose
    transactions. So the default here is ``replication_factor`` of the configuration.
    """
    name = "topic_replication_factor"
    if settings.get(name) is None and f"{conf.env_prefix or ''}{name.upper()}" not in os.environ:
        return config.replication_factor
    return int(conf.topic_replication_factor)


def _kept_settings(conf: Any) -> dict[str, Any]:
    """The settings of the web server that Faust's command ``worker`` would overwrite.

    The command switches the server on, unless it has the option ``--without-web``. With ``--web-port``, the command
    forgets ``canonical_url``. Faust warns if the command changes a setting that was read as an attribute.
    """
    enabled, url, host, port = (
        getattr(conf, Settings.SETTINGS[name].storage_name)
        for name in ("web_enabled", "canonical_url", "web_host", "web_port")
    )
    kept = {} if enabled else {"web_enabled": False}
    return kept if str(url) == f"http://{host}:{port}" else {**kept, "canonical_url": url}


_HOST_NAME = re.compile(r"[\w*?.-]+", re.ASCII)

_CONVERTED = (params.Bool, params.Number, params.Seconds, params.URL)
"""The kinds of Faust's settings whose values are checked early, because their conversion imports no module."""


def _check_value(name: str, value: Any) -> None:
    setting = Settings.SETTINGS.get(name)
    if value is None or not isinstance(setting, _CONVERTED):
        return
    try:
        converted = setting.prepare_set(None, value)
    except (ImproperlyConfigured, TypeError, ValueError) as error:
        reason = without_user(f"{value!r}: {error}")
        raise ConfigError(f"{name} cannot be {reason}") from None
    if name == "canonical_url" and not (isinstance(converted, URL) and converted.host):
        raise ConfigError(
            "canonical_url has to be the address at which other workers reach this one, such as http://host:6066, not "
            f"{without_user(repr(value))}"
        )


def _check_hosts(names: Any) -> None:
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ConfigError(f"web_allowed_hosts has to be a list of names, not {names!r}")
    for name in names:
        if not isinstance(name, str) or not _HOST_NAME.fullmatch(name):
            raise ConfigError(
                f"web_allowed_hosts has {name!r}: expected a name without scheme and port, such as views.example.com, "
                "or *.example.com"
            )


def _listeners(topology: object, restores: Any, standbys: Any) -> ListenerCalls:
    for name, listener, kind in (
        ("state_restore_listener", restores, StateRestoreListener),
        ("standby_update_listener", standbys, StandbyUpdateListener),
    ):
        if listener is None:
            continue
        if not isinstance(listener, kind):
            raise ConfigError(
                f"{name} has to be an object of a class derived from {kind.__name__}, not {listener!r}"
            )
        if topology is None:
            raise ConfigError(f"{name} needs a topology, because it follows the stores of a topology only")
    return ListenerCalls(restores, standbys)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _build(topology: Topology | Callable[[StreamsBuilder], Any], config: StreamsConfig) -> Topology:
    if isinstance(topology, Topology):
        return topology
    require_function(topology, "App", "as topology a Topology, or a function of a StreamsBuilder", 1)
    builder = StreamsBuilder(config)
    topology(builder)
    return builder.build()


def _config(
    id: str, config: StreamsConfig | None, bootstrap_servers: str | None, datadir: str | Path | None
) -> StreamsConfig:
    config = config or StreamsConfig(id)
    if config.application_id != id:
        if config.application_id != StreamsConfig().application_id:
            raise ConfigError(
                f"the App is called {id!r}, but its config says application_id={config.application_id!r}: give both "
                "the same name, or leave application_id out"
            )
        config = config.replace(application_id=id)
    if bootstrap_servers is not None:
        config = config.replace(bootstrap_servers=bootstrap_servers)
    if datadir is not None:
        config = config.replace(state_dir=str(Path(datadir) / "state"))
    return config


def _faust_settings(config: StreamsConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    session = config.session_timeout_ms / 1000
    replies = given.get("reply_to_prefix", f"{config.application_id}-reply-")
    settings: dict[str, Any] = {"reply_to_prefix": replies}
    if config.exactly_once:
        settings["broker_commit_interval"] = config.commit_interval / 1000
    if config.group_instance_id is not None:
        settings["consumer_group_instance_id"] = config.group_instance_id
        settings["reply_to"] = f"{replies}{config.group_instance_id}"  # each start has the same topic
    if (largest := config.client_properties.get("message.max.bytes")) is not None:
        # The producer of agents with at_least_once is Faust's. All other producers have the property already.
        settings["producer_max_request_size"] = int(largest)
    return settings | {
        "broker_client_id": client_id(config),
        "worker_redirect_stdouts": False,  # a print is no warning
        "web_bind": "127.0.0.1",
        "broker_session_timeout": session,
        "broker_heartbeat_interval": min(3.0, session / 3),
        "broker_request_timeout": max(90.0, session),
        "broker_max_poll_interval": config.max_poll_interval_ms / 1000,
        "consumer_metadata_max_age_ms": 60_000,  # how long new partitions of a source may stay unnoticed
    }
