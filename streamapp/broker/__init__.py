"""Kafka for development, and the settings with which an existing cluster is used instead."""

from streamapp.broker.local import BrokerStatus, ClusterStatus, LocalKafka

__all__ = ["BrokerStatus", "ClusterStatus", "LocalKafka"]
