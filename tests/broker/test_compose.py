"""docker-compose.yml: pinned images, health checks, and the same brokers as a local cluster of three."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamapp.broker.distribution import KAFKA_VERSION
from streamapp.broker.properties import cluster_properties

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
BROKERS = ["kafka-1", "kafka-2", "kafka-3"]
MONITORS = ["prometheus", "grafana"]
# What depends on where a broker runs rather than on how it behaves.
PLACE = {
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "heap.opts",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dirs",
    "node.id",
    "process.roles",
}


def broker_properties(service: str) -> dict[str, str]:
    """Read ``KAFKA_LOG_DIRS`` as ``log.dirs``, as Kafka's image does."""
    environment: dict[str, str] = SERVICES[service]["environment"]
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith("KAFKA_")
    }


def test_the_services_are_there() -> None:
    assert sorted(SERVICES) == sorted(
        [*BROKERS, "worker-1", "worker-2", "spark-master", "spark-worker", *MONITORS]
    )


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_a_health_check_and_a_pinned_image(service: str) -> None:
    check = SERVICES[service]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)
    assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", SERVICES[service]["image"])


def test_the_image_of_the_workers_is_built_on_a_pinned_one() -> None:
    dockerfile = (ROOT / SERVICES["worker-1"]["build"]["dockerfile"]).read_text()
    assert re.search(r"^FROM [\w/]+:v?\d+\.\d+\.\d+\S*$", dockerfile, re.MULTILINE)
    for source in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE):
        for path in source.split():
            if path != "README.md":
                assert (ROOT / path).exists(), path


@pytest.mark.parametrize("service", BROKERS)
def test_the_brokers_are_those_of_a_local_cluster_of_three(service: str) -> None:
    properties = broker_properties(service)
    behaviour = {name: value for name, value in properties.items() if name not in PLACE}
    assert behaviour == cluster_properties(3)
    assert set(properties) >= PLACE
    assert SERVICES[service]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    assert properties["node.id"] == service[-1]


def test_no_two_services_publish_the_same_port_and_none_beyond_this_machine() -> None:
    published = [port.rpartition(":")[0] for service in SERVICES.values() for port in service["ports"]]
    assert len(set(published)) == len(published)
    assert all(address.startswith("127.0.0.1:") for address in published)


def test_every_client_knows_all_three_brokers() -> None:
    servers = ",".join(f"{broker}:19092" for broker in BROKERS)
    for service in set(SERVICES) - {*BROKERS, *MONITORS}:
        assert SERVICES[service]["environment"]["STREAMAPP_BOOTSTRAP_SERVERS"] == servers


@pytest.mark.parametrize("service", MONITORS)
def test_prometheus_and_grafana_get_files_that_exist(service: str) -> None:
    mounted = [volume.split(":")[0] for volume in SERVICES[service]["volumes"] if volume.startswith("./")]
    assert mounted
    assert [path for path in mounted if not (ROOT / path).is_dir()] == []


def test_prometheus_reads_every_worker_and_the_rules_and_grafana_reads_prometheus() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    workers = [f"{name}:6066" for name in SERVICES if name.startswith("worker-")]
    assert job["static_configs"] == [{"targets": workers}]
    assert Path(job["authorization"]["credentials_file"]).name in SERVICES["prometheus"]["secrets"]
    assert all((ROOT / "deploy/prometheus" / name).is_file() for name in config["rule_files"])
    provisioning = ROOT / "deploy/grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards/streamapp.yml").read_text())["providers"]
    targets = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert provider["options"]["path"] in targets
