"""The test driver, which runs a topology in the process of a test."""

from streamapp.runners.local.driver import TopologyTestDriver
from streamapp.runners.local.typed_topics import TestInputTopic, TestOutputTopic

__all__ = ["TestInputTopic", "TestOutputTopic", "TopologyTestDriver"]
