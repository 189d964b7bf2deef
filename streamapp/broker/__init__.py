"""Clients of Kafka: a local broker for development, and the settings to use an existing cluster."""

from streamapp.broker.admin import KafkaAdmin, TopicSpec
from streamapp.broker.local import BrokerStatus, ClusterStatus, LocalKafka
from streamapp.broker.settings import KafkaSettings

__all__ = ["BrokerStatus", "ClusterStatus", "KafkaAdmin", "KafkaSettings", "LocalKafka", "TopicSpec"]
