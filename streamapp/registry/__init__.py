"""Schema registries: a client of Confluent's REST interface, and a local one for development."""

from streamapp.registry.confluent import ConfluentSchemaRegistry
from streamapp.registry.registry_settings import RegistrySettings

__all__ = ["ConfluentSchemaRegistry", "RegistrySettings"]
