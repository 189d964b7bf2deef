"""Names of nodes, stores and internal topics: given by the user, or generated as Kafka Streams generates them.

One counter numbers everything in the order in which the DSL is called. A number is used up also where a
given name takes the generated one's place, so that naming one operator does not rename the others.
"""

from __future__ import annotations

from streamapp._base.names import check_name
from streamapp.errors import TopologyError

__all__ = ["Names"]


class Names:
    """The counter of one builder, and which internal resources have generated names."""

    def __init__(self) -> None:
        self._next = 0
        self._generated: dict[str, list[str]] = {
            "changelog topic": [],
            "state store": [],
            "repartition topic": [],
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
        """The given name with a suffix, or the next generated one."""
        generated = self.new(prefix)
        return generated if name is None else check_name(name + suffix)

    def note_generated(
        self, *, store: str | None = None, changelog: str | None = None, repartition: str | None = None
    ) -> None:
        """Remembers internal resources whose names would change with the topology."""
        for kind, name in (
            ("changelog topic", changelog),
            ("state store", store),
            ("repartition topic", repartition),
        ):
            if name is not None and name not in self._generated[kind]:
                self._generated[kind].append(name)

    def require_explicit(self) -> None:
        """Raises `TopologyError` if an internal resource has a generated name (KIP-1111)."""
        found = [f"{kind} {', '.join(names)}" for kind, names in self._generated.items() if names]
        if found:
            raise TopologyError(
                f"not explicitly named: {'; '.join(found)}. Name the operators and stores (name=..., "
                "Materialized(name)), or set ensure_explicit_internal_resource_naming=False"
            )
