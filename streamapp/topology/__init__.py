"""Topologies and their plans: what is computed, before it runs anywhere."""

from streamapp.topology.plan import GlobalStore, InternalTopic, Plan, Subtopology
from streamapp.topology.topology import Topology

__all__ = ["GlobalStore", "InternalTopic", "Plan", "Subtopology", "Topology"]
