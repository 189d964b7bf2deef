"""Turns the nodes of a sub-topology into functions that call each other. A task runs its records through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from streamapp.config import ProcessorWrapper
from streamapp.engine.failures import Failures, ProcessingFailed
from streamapp.engine.operator import Operator, ProcessFn, TaskContext
from streamapp.engine.operators.forward import nowhere
from streamapp.engine.operators.processor import ProcessorOperator
from streamapp.engine.running_task import RunningTask
from streamapp.engine.sink import bind_sink
from streamapp.errors import ConfigError, StreamsError
from streamapp.records import Headers, Record, check_timestamp
from streamapp.topology.nodes import Node, ProcessorNode, SinkNode

__all__ = ["BoundContext", "bind_nodes"]


class BoundContext:
    """The `NodeContext` of one operator in one task."""

    def __init__(
        self, node: ProcessorNode, task: RunningTask, children: Mapping[str, ProcessFn], failures: Failures
    ) -> None:
        self.failures = self._failures = failures
        self.name: str = node.name
        self.task: TaskContext = task
        self._task = task
        aside = getattr(node.operator, "side_outputs", ())
        self.forward: ProcessFn = fan_out([child for name, child in children.items() if name not in aside])
        self._node = node
        self._children = children

    def forward_to(self, child: str) -> ProcessFn:
        try:
            return self._children[child]
        except KeyError:
            raise StreamsError(
                f"{self.name} has no child {child}; its children are {', '.join(self._children) or 'none'}"
            ) from None

    def drop(self, reason: str, count: int = 1, *, in_total: bool = True) -> None:
        self._task.drop(count, self.name, reason, in_total=in_total)

    def handled(self, function: Callable[..., None]) -> Callable[..., None]:
        failures, name = self._failures, self.name

        def handled(*update: Any) -> None:
            try:
                function(*update)
            except ProcessingFailed:
                raise
            except Exception as error:
                failures.processing(error, failures.node_of(error.__traceback__, name))

        return handled

    def store(self, name: str) -> Any:
        task = self._task
        if name in self._node.stores or name in task.global_stores:
            return task.store(name)
        raise StreamsError(
            f"processor {self.name} has no access to state store {name}: it is not connected. Name the store in "
            "process(), process_values() or transform_values(), in the supplier's `stores`, or with "
            "connect_processor_and_state_stores()"
        )


def bind_nodes(nodes: tuple[Node, ...], task: RunningTask, failures: Failures) -> dict[str, ProcessFn]:
    """The function of each node, by the node's name. Children are bound before their parents."""
    children: dict[str, list[str]] = {n.name: [] for n in nodes}
    for node in nodes:
        for parent in node.parents:
            children[parent].append(node.name)
    bound: dict[str, ProcessFn] = {}
    wrapper = task.plan.config.processor_wrapper
    guard = task.plan.config.processing_exception_handler != "fail"
    for node in _children_first(nodes, children):
        if not isinstance(node, ProcessorNode) and node.on_error is not None:
            failures.answers[node.name] = node.on_error
        if isinstance(node, SinkNode):
            bound[node.name] = bind_sink(node, task, failures)
        elif isinstance(node, ProcessorNode):
            context = BoundContext(node, task, {c: bound[c] for c in children[node.name]}, failures)
            operator = (
                node.operator if isinstance(node.operator, Operator) else ProcessorOperator(node.operator)
            )
            function = operator.bind(context)
            if wrapper is not None:
                function = _wrapped(function, node.name, wrapper)
            # A node that only hands records on, such as a merge, may give the function of its child. This function
            # keeps the child's name, because the node itself cannot raise.
            if not any(function is bound[child] for child in children[node.name]):
                function = _named(function, node.name, failures)
            bound[node.name] = _guarded(function, node.name, failures) if guard else function
        else:
            bound[node.name] = fan_out([bound[c] for c in children[node.name]])
    return bound


def _children_first(nodes: tuple[Node, ...], children: dict[str, list[str]]) -> list[Node]:
    """The nodes in reverse topological order. A node may stand before a parent in ``nodes``."""
    by_name = {n.name: n for n in nodes}
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in done:
            for child in children[name]:
                visit(child)
            done[name] = None

    for node in reversed(nodes):
        visit(node.name)
    return [by_name[name] for name in done]


def fan_out(children: list[ProcessFn]) -> ProcessFn:
    """One function that calls all children in order; the child itself if there is only one."""
    if not children:
        return nowhere
    if len(children) == 1:
        return children[0]
    if len(children) == 2:
        first, second = children

        def both(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            first(key, value, timestamp, headers)
            second(key, value, timestamp, headers)

        return both

    def each(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for child in children:
            child(key, value, timestamp, headers)

    return each


def _wrapped(function: ProcessFn, name: str, wrapper: ProcessorWrapper) -> ProcessFn:
    def process(record: Record) -> None:
        if record.__class__ is not Record:
            raise StreamsError(
                f"processor_wrapper gave {name} a {type(record).__name__} in place of a Record"
            )
        check_timestamp(record.timestamp)
        function(*record)

    outer = wrapper(name, process)
    if not callable(outer):
        raise ConfigError(
            f"processor_wrapper returned {outer!r} for {name}: it has to return a function of a Record"
        )

    def wrapped(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        outer(Record(key, value, timestamp, headers))

    return wrapped


def _named(function: ProcessFn, name: str, failures: Failures) -> ProcessFn:
    """A copy of the function that has the node's name in tracebacks.

    `Failures.node_of` finds the node that raised by the code object of this copy. So with the handler "fail", no node
    needs a try block around it, which would slow down every record.
    """
    if not isinstance(function, FunctionType):
        inner = function

        def call(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            inner(key, value, timestamp, headers)

        function = call
    assert isinstance(function, FunctionType)
    code = function.__code__.replace(co_name=name, co_qualname=name)
    failures.codes[code] = name
    return FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)


def _guarded(function: ProcessFn, name: str, failures: Failures) -> ProcessFn:
    def guarded(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            function(key, value, timestamp, headers)
        except ProcessingFailed:
            raise
        except Exception as error:
            failures.processing(error, name)

    return guarded
