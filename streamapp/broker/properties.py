"""The settings of a local broker, in the names of Kafka's ``server.properties``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = [
    "HOST",
    "LOG_FOLDER",
    "cluster_properties",
    "controller_properties",
    "node_properties",
    "parse",
    "render",
]

HOST = "127.0.0.1"
LOG_FOLDER = "logs"


def cluster_properties(brokers: int) -> dict[str, str]:
    """Return the settings that all brokers of a local cluster share; docker-compose.yml has the same settings."""
    replicas = str(min(brokers, 3))
    in_sync = "2" if brokers >= 3 else "1"
    return {
        # A topic's partition count decides co-partitioning, so nobody gets a topic by mistyping a name.
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        # Event times are often years old: retention by time would delete replayed history at once.
        "log.retention.ms": "-1",
        # Groups form and notice a dead member in test time, not in production time.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        # The first interval after a start must be longer than the broker's session, for a broker that Docker starts
        # again after a kill (docs/decisions/former-sessions-end-first.md).
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "5000",
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        # A small heap: the log cleaner alone would take 128 MB of it.
        "log.cleaner.dedupe.buffer.size": "16777216",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }


def node_properties(node: int, ports: Sequence[int], controller_ports: Sequence[int]) -> dict[str, str]:
    """Return the settings of broker ``node`` (1, 2, ...), which is a controller of the quorum as well."""
    port, controller_port = ports[node - 1], controller_ports[node - 1]
    voters = ",".join(f"{number}@{HOST}:{at}" for number, at in enumerate(controller_ports, start=1))
    return {
        "node.id": str(node),
        "process.roles": "broker,controller",
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        # Relative to the folder of the broker, where it runs. A whole path could contain commas, at which Kafka splits
        # the value, or characters beyond Latin-1, in which Kafka reads the file.
        "log.dirs": LOG_FOLDER,
    }


def controller_properties(node: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which the controller of a node runs without its broker.

    The session of brokers is short, because no broker is alive.
    """
    only_of_brokers = ("advertised.listeners", "inter.broker.listener.name")
    listeners = [each for each in node["listeners"].split(",") if each.startswith("CONTROLLER:")]
    return {name: value for name, value in node.items() if name not in only_of_brokers} | {
        "process.roles": "controller",
        "listeners": ",".join(listeners),
        "broker.session.timeout.ms": "500",
        "broker.heartbeat.interval.ms": "100",
    }


def render(properties: Mapping[str, str]) -> str:
    """Return the text of a ``.properties`` file; none of the values here needs an escape."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def parse(text: str) -> dict[str, str]:
    """Return the settings of a ``.properties`` file that `render` has written."""
    return dict(line.split("=", 1) for line in text.splitlines() if line)
