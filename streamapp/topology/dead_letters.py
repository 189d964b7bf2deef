"""The check, made while a topology is planned, that dead letters have a topic."""

from __future__ import annotations

from collections.abc import Iterable

from streamapp._base.names import of_topics
from streamapp.config import StreamsConfig
from streamapp.errors import ConfigError
from streamapp.on_error import Retry
from streamapp.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

__all__ = ["check_dead_letters"]


def check_dead_letters(nodes: Iterable[Node], config: StreamsConfig) -> None:
    """Raises `ConfigError` if a node may give the answer "dead_letter", but ``dead_letter_queue_topic`` is not set.

    The answer may be the ``on_error`` of the node, or the last answer of its `Retry`. A function as ``on_error`` is not
    checked, because its answers are not known before a record fails.
    """
    if config.dead_letter_queue_topic is not None:
        return
    for node in nodes:
        if "dead_letter" in _answers(node):
            where = of_topics(node.name, *_topics(node))
            raise ConfigError(
                f"{where} sends records to the dead letters, but there is no topic for them. Set "
                "dead_letter_queue_topic in the StreamsConfig, or give another answer as on_error (of a Retry: as "
                "then= and when_full=)"
            )


def _topics(node: Node) -> tuple[str, ...]:
    if isinstance(node, SourceNode):
        return node.topics or ((node.pattern.pattern,) if node.pattern else ())
    return (node.topic,) if isinstance(node, SinkNode) and isinstance(node.topic, str) else ()


def _answers(node: Node) -> frozenset[object]:
    if not isinstance(node, ProcessorNode):
        return frozenset((node.on_error,))
    retry = getattr(node.operator, "retry", None)
    if isinstance(retry, Retry):
        return frozenset(retry.answers)
    return frozenset((getattr(node.operator, "on_error", None),))
