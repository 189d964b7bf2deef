"""`DropCounts`: the dropped records of tasks, as metrics show them: from 0 on, under names that users have given."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from streamapp.engine.operator import Operator
from streamapp.runners.worker.placement import TaskId
from streamapp.topology.nodes import ProcessorNode
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["DropCounts"]

_GENERATED = re.compile(r"K(STREAM|TABLE)-.*\d{10}")


class DropCounts:
    """The names and reasons under which the operators and stores of a plan count drops.

    Prometheus' ``rate`` misses the first drop of a series that begins with this drop. So each task has its series from
    the start, except those of records that failed, which may fail in every operator.
    """

    def __init__(self, plan: Plan) -> None:
        self._declared = {sub.id: frozenset(_declared(sub)) for sub in plan.subtopologies}
        self._shown = {name: store for sub in plan.subtopologies for name, store in _stores_of(sub)}

    def of(
        self, tasks: Iterable[TaskId], drops: Mapping[tuple[str, str, str], int]
    ) -> dict[tuple[str, str, str], int]:
        """The drops by task, operator (or store) and reason, with 0 for those that ``tasks`` do not have yet."""
        found = Counter[tuple[str, str, str]]()
        for task in tasks:
            for where, reason in self._declared.get(task.subtopology, ()):
                found[str(task), self._shown.get(where, where), reason] = 0
        for (id, where, reason), count in drops.items():
            found[id, self._shown.get(where, where), reason] += count
        return dict(found)


def _declared(sub: Subtopology) -> Iterable[tuple[str, str]]:
    for node in sub.nodes:
        if isinstance(node, ProcessorNode):
            # An operator with `on_error` is inside another one.
            operator = getattr(node.operator, "operator", node.operator)
            if isinstance(operator, Operator):  # and no supplier of a user's processor
                yield from ((node.name, reason) for reason in operator.drops)
    for spec in sub.stores:
        yield from ((spec.name, reason) for reason in spec.kind.drops)


def _stores_of(sub: Subtopology) -> Iterable[tuple[str, str]]:
    """Generated names of operators, each with the given name of the operator's only store."""
    for node in sub.nodes:
        if isinstance(node, ProcessorNode) and _GENERATED.fullmatch(node.name) and len(node.stores) == 1:
            (store,) = node.stores
            if not _GENERATED.fullmatch(store):
                yield node.name, store
