"""The checks of dead letters, made while a topology is planned: the letters have a topic, and do not go in a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamapp._base.letter_cycles import MAKES_LETTERS, letters_of_letters
from streamapp._base.names import of_topics
from streamapp.config import StreamsConfig
from streamapp.errors import ConfigError
from streamapp.on_error import Retry
from streamapp.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

__all__ = ["asks_function", "check_cycles", "check_dead_letters"]


def check_dead_letters(nodes: Iterable[Node], config: StreamsConfig) -> None:
    """Raises `ConfigError` if a node may give the answer "dead_letter", but ``dead_letter_queue_topic`` is not set.

    The answer may be the ``on_error`` of the node, or ``then`` or ``when_full`` of its `Retry`. A function as
    ``on_error`` is not checked, because its answers are not known before a record fails.
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


def check_cycles(nodes: Iterable[Node], config: StreamsConfig) -> None:
    """Raises `ConfigError` if the application reads its own dead letters, and a letter that fails becomes a new letter.

    With ``dead_letter_drops``, records that a node with a store drops may become letters, too. A function as
    ``on_error``, or as exception handler of the configuration, is not checked. The answers of a function are not known
    before a record fails.
    """
    letters = config.dead_letter_queue_topic
    if letters is None:
        return
    known = tuple(nodes)
    for source in known:
        if not isinstance(source, SourceNode) or not _reads(source, letters):
            continue
        for node in _behind(source, known):
            if (cause := _letter_cause(node, config)) is not None:
                where = of_topics(source.name, *_topics(source))
                raise ConfigError(letters_of_letters(where, letters, f"{node.name} has {cause}"))


def asks_function(nodes: Iterable[Node]) -> bool:
    """True if ``on_error`` of an operator or a sink is a function, which may make dead letters of its own."""
    return any(
        callable(answer) for node in nodes if not isinstance(node, SourceNode) for answer in _answers(node)
    )


def _reads(source: SourceNode, topic: str) -> bool:
    return topic in source.topics or (
        source.pattern is not None and source.pattern.fullmatch(topic) is not None
    )


def _behind(source: SourceNode, nodes: Sequence[Node]) -> list[Node]:
    """The source and all nodes that its records can reach, also through a topic that a sink writes to."""
    reached: dict[str, Node] = {source.name: source}
    waiting: list[Node] = [source]
    while waiting:
        node = waiting.pop()
        written = node.topic if isinstance(node, SinkNode) and isinstance(node.topic, str) else None
        for each in nodes:
            reads = written is not None and isinstance(each, SourceNode) and _reads(each, written)
            if (node.name in each.parents or reads) and each.name not in reached:
                reached[each.name] = each
                waiting.append(each)
    return list(reached.values())


def _letter_cause(node: Node, config: StreamsConfig) -> str | None:
    """The setting by which a failed record of the node becomes a dead letter. None: no setting says so."""
    for answer in sorted(map(str, _answers(node) - {None})):
        if answer in MAKES_LETTERS:
            return f'the answer "{answer}"'
    if _answers(node) == {None} and _may_fail(node):
        kind = {SourceNode: "deserialization", SinkNode: "production"}.get(type(node), "processing")
        handler = getattr(config, f"{kind}_exception_handler")
        if handler in MAKES_LETTERS:
            return f'no on_error, and {kind}_exception_handler is "{handler}"'
    if config.dead_letter_drops and isinstance(node, ProcessorNode) and node.stores:
        return f"a store, and dead_letter_drops is {config.dead_letter_drops!r}"
    return None


def _may_fail(node: Node) -> bool:
    """False for a step without any function of the user, such as a merge, which takes no ``on_error``."""
    return not isinstance(node, ProcessorNode) or getattr(node.operator, "calls_functions", True)


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
