"""A topology as a Mermaid flowchart, which GitHub and most documentation tools draw."""

from __future__ import annotations

from collections.abc import Iterable

from streamapp.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

__all__ = ["to_mermaid"]


def to_mermaid(subtopologies: Iterable[Iterable[Node]]) -> str:
    """The text of the flowchart: topics are ovals, nodes boxes, stores cylinders, sub-topologies frames."""
    ids: dict[str, str] = {}
    topics: dict[str, str] = {}
    body: list[str] = []
    edges: list[str] = []

    def topic_id(label: str) -> str:
        return topics.setdefault(label, f"t{len(topics)}")

    for number, nodes in enumerate(subtopologies):
        body.append(f"  subgraph s{number}[Sub-topology {number}]")
        stores: dict[str, str] = {}
        for node in nodes:
            ids[node.name] = me = f"n{len(ids)}"
            body.append(f'    {me}["{node.name}"]')
            edges.extend(f"  {ids[parent]} --> {me}" for parent in node.parents)
            if isinstance(node, SourceNode):
                labels = node.topics or (node.pattern.pattern if node.pattern else "",)
                edges.extend(f"  {topic_id(label)} --> {me}" for label in labels)
            elif isinstance(node, SinkNode):
                edges.append(
                    f"  {me} --> {topic_id(node.topic if isinstance(node.topic, str) else 'chosen by record')}"
                )
            elif isinstance(node, ProcessorNode):
                for store in node.stores:
                    if store not in stores:
                        stores[store] = f"s{number}_{len(stores)}"
                        body.append(f'    {stores[store]}[("{store}")]')
                    edges.append(f"  {me} -.- {stores[store]}")
        body.append("  end")
    outside = [f'  {me}(["{label}"])' for label, me in topics.items()]
    return "\n".join(["flowchart LR", *outside, *body, *edges]) + "\n"
