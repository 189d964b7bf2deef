"""What a plan must not ask of a worker."""

from __future__ import annotations

from streamapp.engine.operators.asynchronous import AsyncMap
from streamapp.errors import ConfigError
from streamapp.topology.nodes import ProcessorNode
from streamapp.topology.plan import Plan

__all__ = ["check_timeouts"]


def check_timeouts(plan: Plan) -> None:
    """With exactly_once_v2 a transaction stays open until all asynchronous calls in it have ended, and the broker rolls
    it back after ``transaction_timeout_ms``. Raises `ConfigError` where the calls alone may take longer."""
    config = plan.config
    if not config.exactly_once:
        return
    for sub in plan.subtopologies:
        steps = [n for n in sub.nodes if isinstance(n, ProcessorNode) and isinstance(n.operator, AsyncMap)]
        longest = sum(node.operator.timeout_ms for node in steps)
        if steps and longest + config.commit_interval >= config.transaction_timeout_ms:
            raise ConfigError(
                f"the calls of {' and '.join(node.name for node in steps)} may take {longest} ms, and a transaction is rolled "
                f"back after transaction_timeout_ms={config.transaction_timeout_ms} (commit interval "
                f"{config.commit_interval} ms): give the steps a shorter timeout, or set a longer transaction_timeout_ms"
            )
