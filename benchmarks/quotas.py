"""Quotas of brokers, which librdkafka's admin client cannot set."""

from __future__ import annotations

import subprocess

from streamapp.broker import LocalKafka
from streamapp.broker.distribution import find_java, kafka_jars

__all__ = ["set_quota"]


def set_quota(kafka: LocalKafka, client_id: str, **limits: int) -> None:
    """Limits what a client may ask of each broker, in Kafka's names (``producer_byte_rate``: bytes each second)."""
    java = find_java()
    listed = ",".join(f"{name}={limit}" for name, limit in limits.items())
    command = [java, "-cp", f"{kafka_jars(java)}/*", "kafka.admin.ConfigCommand", "--alter"]
    command += ["--bootstrap-server", kafka.bootstrap_servers, "--entity-type", "clients"]
    command += ["--entity-name", client_id, "--add-config", listed]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
