"""Names of nodes, stores and internal topics: given by the user, or generated as in Kafka Streams.

A generated name contains a number, which a counter gives in the order of the calls of the DSL. As in Kafka Streams,
most calls with a name of the user's choice use up a number, too. So if the user gives an operator a name, the generated
names of all other operators stay.
"""

from __future__ import annotations

from streamapp._base.names import check_name
from streamapp.errors import TopologyError

__all__ = ["Names"]


class Names:
    """The counter of one `StreamsBuilder`, and a list of the stores and internal topics with generated names
    (`note_generated`)."""

    def __init__(self) -> None:
        self._next = 0
        self._generated: dict[str, list[str]] = {
            "changelog topic": [],
            "state store": [],
            "repartition topic": [],
            "retry topic": [],
        }

    def new(self, prefix: str) -> str:
        """The next generated name."""
        name = f"{prefix}{self._next:010d}"
        self._next += 1
        return name

    def new_store(self, prefix: str) -> str:
        """The next generated name of a store."""
        return self.new(f"{prefix}STATE-STORE-")

    def given_or_new(self, name: str | None, prefix: str) -> str:
        """The given name, checked, or the next generated one."""
        generated = self.new(prefix)
        return generated if name is None else check_name(name)

    def suffixed_or_new(self, name: str | None, suffix: str, prefix: str) -> str:
        """The given name with a suffix, or the next generated one. The name is checked with the suffix and without."""
        generated = self.new(prefix)
        return generated if name is None else check_name(check_name(name) + suffix)

    def note_generated(
        self,
        *,
        store: str | None = None,
        changelog: str | None = None,
        repartition: str | None = None,
        retry: str | None = None,
    ) -> None:
        """Notes stores and internal topics with generated names, which may change when the topology changes."""
        for kind, name in (
            ("changelog topic", changelog),
            ("state store", store),
            ("repartition topic", repartition),
            ("retry topic", retry),
        ):
            if name is not None and name not in self._generated[kind]:
                self._generated[kind].append(name)

    def require_explicit(self) -> None:
        """Raises `TopologyError` if a store or an internal topic with a generated name was noted (KIP-1111)."""
        found = [f"{kind} {', '.join(names)}" for kind, names in self._generated.items() if names]
        if found:
            raise TopologyError(
                f"not explicitly named: {'; '.join(found)}. Name the operators and stores (name=..., "
                "Materialized(name)), or allow generated names: ensure_explicit_internal_resource_naming=False"
            )
