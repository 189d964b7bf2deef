"""Kafka for development, and the settings with which an existing cluster is used instead."""

from streamapp.broker.admin import KafkaAdmin, TopicSpec
from streamapp.broker.local import BrokerStatus, ClusterStatus, LocalKafka
from streamapp.broker.settings import KafkaSettings

__all__ = ["BrokerStatus", "ClusterStatus", "KafkaAdmin", "KafkaSettings", "LocalKafka", "TopicSpec"]
