"""Topologies, and the plans that runners make of them. Nothing here runs a topology."""

from streamapp.topology.compat import Compatibility, Finding, Need, compare_topologies
from streamapp.topology.plan import GlobalStore, InternalTopic, Plan, Subtopology
from streamapp.topology.topology import Topology

__all__ = [
    "Compatibility",
    "Finding",
    "GlobalStore",
    "InternalTopic",
    "Need",
    "Plan",
    "Subtopology",
    "Topology",
    "compare_topologies",
]
