"""Schema registries: a client for Confluent's REST interface, and a local registry for development."""

from streamapp.registry.confluent import ConfluentSchemaRegistry
from streamapp.registry.registry_settings import RegistrySettings

__all__ = ["ConfluentSchemaRegistry", "RegistrySettings"]
