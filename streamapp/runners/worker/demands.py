"""Checks before a worker starts: plans that this worker, or this process, cannot run."""

from __future__ import annotations

import logging

from streamapp._base.counted import counted
from streamapp.engine.global_letters import NO_WRITER, letter_cause
from streamapp.engine.operators.asynchronous import AsyncMap
from streamapp.errors import ConfigError
from streamapp.state.files import file_limit, files_needed, raise_file_limit, too_few_files
from streamapp.topology.nodes import ProcessorNode
from streamapp.topology.plan import Plan

__all__ = ["check_file_limit", "check_letters", "check_timeouts"]

logger: logging.Logger = logging.getLogger(__name__)


def check_timeouts(plan: Plan) -> None:
    """With exactly_once_v2, raises `ConfigError` if asynchronous calls may outlast ``transaction_timeout_ms``.

    The time-outs of the calls of one sub-topology count together, and the commit interval counts, too. A transaction
    stays open until all its asynchronous calls have ended. Brokers would abort a longer transaction again and again.
    """
    config = plan.config
    if not config.exactly_once:
        return
    for sub in plan.subtopologies:
        steps = [n for n in sub.nodes if isinstance(n, ProcessorNode) and isinstance(n.operator, AsyncMap)]
        longest = sum(node.operator.timeout_ms for node in steps)
        if steps and longest + config.commit_interval >= config.transaction_timeout_ms:
            raise ConfigError(
                f"the calls of {' and '.join(node.name for node in steps)} may take {longest} ms, but the broker rolls "
                f"a transaction back after transaction_timeout_ms={config.transaction_timeout_ms} (commit interval "
                f"{config.commit_interval} ms). Give the steps a shorter timeout, or set a longer "
                "transaction_timeout_ms"
            )


def check_letters(plan: Plan) -> None:
    """Raises `ConfigError` if a plan without tasks makes dead letters of records of global tables.

    The worker with the first task writes these letters (`GlobalLetters`), so nobody would write them. The answers of a
    function are not known before a record fails, so `GlobalStores` refuses the letters of a function.
    """
    if not plan.subtopologies and (cause := letter_cause(plan)) is not None:
        raise ConfigError(f"{cause}, but {NO_WRITER}")


def check_file_limit(tasks: int) -> None:
    """Raises `ConfigError` if this process may not open enough files for even one task with state.

    Logs a warning if the files are not enough for all ``tasks``. The process first raises its own limit as far as the
    system allows.
    """
    raise_file_limit()
    limit = file_limit()
    if limit < files_needed(1):
        raise ConfigError(too_few_files(limit))
    if limit < files_needed(tasks):
        logger.warning("The application has %s with state. %s", counted(tasks, "task"), too_few_files(limit))
