"""The comparison of two versions of a topology."""

from streamapp.topology.compat.compare import compare_topologies
from streamapp.topology.compat.findings import Compatibility, Finding, Need

__all__ = ["Compatibility", "Finding", "Need", "compare_topologies"]
