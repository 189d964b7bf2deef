"""`KStream.split`: divides a stream into branches. A record goes to the first branch whose predicate is true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from streamapp._base.callables import require_function
from streamapp._base.names import check_name
from streamapp.dsl.answers import refuse_retry
from streamapp.dsl.graph_nodes import ProcessorNode
from streamapp.dsl.steps import Fixed, Step
from streamapp.engine.operator import Operator
from streamapp.engine.operators.guarded import guarded
from streamapp.engine.operators.stateless import Branch, PassThrough
from streamapp.errors import TopologyError
from streamapp.on_error import Answer, Chooser, OnError

if TYPE_CHECKING:
    from streamapp.dsl.kstream import KStream

__all__ = ["BranchedKStream"]

K = TypeVar("K")
V = TypeVar("V")


class _BranchStep(Step):
    def __init__(self, on_error: Answer | Chooser | None) -> None:
        self.predicates: list[Callable[[Any, Any], bool]] = []
        self.children: list[str] = []
        self._on_error = on_error

    def operator(self, versioned: bool) -> Operator:
        branch = Branch(tuple(self.predicates), tuple(self.children))
        return guarded(branch, self._on_error, holds=True)


class _Branches(dict[str, "KStream[K, V]"], Generic[K, V]):
    """The branches by name. The error for a missing name lists the names that exist."""

    def __init__(self, split: str, branches: Mapping[str, KStream[K, V]]) -> None:
        super().__init__(branches)
        self._split = split

    def __missing__(self, name: str) -> KStream[K, V]:
        raise KeyError(
            f"there is no branch {name}; the name of a branch begins with the name of its split, {self._split}. "
            f"The branches are {', '.join(self) or 'none'}"
        )


class BranchedKStream(Generic[K, V]):
    """A stream that is being split into branches. (Kafka Streams: ``BranchedKStream``.)

    A record goes to the first branch, in the order of the calls of `branch`, whose predicate is true. If no predicate
    is true, the record goes to the default branch, or is dropped if there is none.

    >>> from streamapp.testing import try_out
    >>> def late(flights):
    ...     branches = flights.split("by-").branch(lambda tail, delay: delay > 15, "late").no_default_branch()
    ...     return branches["by-late"]
    >>> try_out(late, [("N1", 3), ("N2", 20)])
    [('N2', 20)]
    """

    def __init__(self, source: KStream[K, V], name: str | None, on_error: OnError | None = None) -> None:
        self._source = source
        self._name = source._context.names.given_or_new(name, "KSTREAM-BRANCH-")
        self._step = _BranchStep(
            refuse_retry(
                on_error,
                self._name,
                "its predicates say where a record goes and are not tried again",
                "Put the call that may fail into map_values(on_error=Retry...) before the split",
            )
        )
        self._node = ProcessorNode(self._name, self._step)
        self._branches: dict[str, KStream[K, V]] = {}
        self._closed = False
        source._context.graph.add(self._node, source._node)

    def branch(self, predicate: Callable[[K, V], bool], name: str | None = None) -> BranchedKStream[K, V]:
        """Adds a branch for records that no earlier branch takes. (``BranchedKStream.branch``, KIP-418)

        In the result, the branch has the name of the split followed by ``name``. The default of ``name`` is the number
        of the branch, counted from 1.

        >>> from streamapp import StreamsBuilder, StringSerde
        >>> words = StreamsBuilder().stream("words", key_serde=StringSerde(), value_serde=StringSerde())
        >>> list(words.split("by-").branch(lambda key, word: word < "m", "first").no_default_branch())
        ['by-first']
        """
        require_function(predicate, self._name, "a predicate of key and value", 2)
        self._add(str(len(self._step.predicates) + 1) if name is None else name, predicate)
        return self

    def default_branch(self, name: str | None = None) -> dict[str, KStream[K, V]]:
        """Adds a branch for all other records, and returns all branches as a dict by name.
        (``BranchedKStream.defaultBranch``)

        The default of ``name`` is "0".

        >>> from streamapp import StreamsBuilder, StringSerde
        >>> words = StreamsBuilder().stream("words", key_serde=StringSerde(), value_serde=StringSerde())
        >>> list(words.split("by-").branch(lambda key, word: word < "m", "first").default_branch("rest"))
        ['by-first', 'by-rest']
        """
        self._add("0" if name is None else name, None)
        self._closed = True
        return _Branches(self._name, self._branches)

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Drops all other records. Returns the branches as a dict by name. (``BranchedKStream.noDefaultBranch``)

        >>> from streamapp import StreamsBuilder, StringSerde
        >>> words = StreamsBuilder().stream("words", key_serde=StringSerde(), value_serde=StringSerde())
        >>> list(words.split("by-").branch(lambda key, word: word < "m").no_default_branch())
        ['by-1']
        """
        self._closed = True
        return _Branches(self._name, self._branches)

    def _add(self, name: str, predicate: Callable[[K, V], bool] | None) -> None:
        if self._closed:
            raise TopologyError(f"the split {self._name} is complete; add branches before its default branch")
        if not isinstance(name, str):
            raise TopologyError(f"the name of a branch of {self._name} must be a string, not {name!r}")
        source, context = self._source, self._source._context
        child = check_name(self._name + name)
        if child in self._branches:
            raise TopologyError(
                f"the split {self._name} has a branch {name} already; give one of the two another name"
            )
        if predicate is not None:
            self._step.predicates.append(predicate)
        self._step.children.append(child)
        context.names.new(child)
        node = ProcessorNode(child, Fixed(PassThrough()))
        context.graph.add(node, self._node)
        self._branches[child] = context.faces.stream(
            context,
            child,
            node,
            source._sources,
            source.key_serde,
            source.value_serde,
            repartition_required=source.repartition_required,
        )
