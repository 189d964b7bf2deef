"""The settings of standbys, moves and membership, by Kafka's names."""

from __future__ import annotations

import pytest

from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.dsl import StreamsBuilder
from streamapp.errors import ConfigError
from streamapp.runners.worker.clients import consumer_settings
from streamapp.serdes import StringSerde

TEXT = StringSerde()

NAMES = {
    "num.standby.replicas": "2",
    "acceptable.recovery.lag": "0",
    "max.warmup.replicas": "5",
    "client.rack": "eu-1a",
    "group.instance.id": "pod-3",
    "repartition.purge.interval.ms": "60000",
    "state.cleanup.delay.ms": "1000",
}


def test_kafka_s_names() -> None:
    config = StreamsConfig.from_properties(NAMES)
    assert (config.num_standby_replicas, config.acceptable_recovery_lag, config.max_warmup_replicas) == (
        2,
        0,
        5,
    )
    assert (config.client_rack, config.group_instance_id) == ("eu-1a", "pod-3")
    assert (config.repartition_purge_interval_ms, config.state_cleanup_delay_ms) == (60_000, 1_000)


@pytest.mark.parametrize(
    "setting",
    [
        {"num_standby_replicas": -1},
        {"acceptable_recovery_lag": -1},
        {"max_warmup_replicas": 0},
        {"repartition_purge_interval_ms": 0},
        {"state_cleanup_delay_ms": 0},
    ],
)
def test_what_cannot_be_meant(setting: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        StreamsConfig(**setting)  # type: ignore[arg-type]


def test_rack_and_name_reach_the_clients() -> None:
    config = StreamsConfig("flights", client_rack="eu-1a", group_instance_id="pod-3")
    assert consumer_settings(config)["client.rack"] == "eu-1a"
    assert "client.rack" not in consumer_settings(StreamsConfig("flights"))

    def describe(builder: StreamsBuilder) -> None:
        builder.stream("in", key_serde=TEXT, value_serde=TEXT).foreach(print)

    app = App("flights", topology=describe, config=config)
    assert app.conf.consumer_group_instance_id == "pod-3"


def test_brokers_are_named_once_and_a_replacement_reaches_every_client() -> None:
    named = StreamsConfig(
        "app",
        bootstrap_servers="a:1",
        client_properties={"bootstrap.servers": "a:1", "security.protocol": "SSL"},
    )
    assert consumer_settings(named.replace(bootstrap_servers="b:2"))["bootstrap.servers"] == "b:2"
    assert consumer_settings(named)["security.protocol"] == "SSL"
    with pytest.raises(ConfigError, match="bootstrap_servers is a:1: leave it out of client_properties"):
        StreamsConfig("app", bootstrap_servers="a:1", client_properties={"bootstrap.servers": "b:2"})
