"""The doctor's checks, one file for each family. An import of this package registers all checks."""

from streamapp.operations.doctor.checks import (
    broker_checks,
    client_checks,
    group_checks,
    record_checks,
    topic_checks,
    transaction_checks,
    worker_checks,
)
from streamapp.operations.doctor.registry import CHECKS

__all__ = ["ALL"]

_FAMILIES = (
    broker_checks,
    topic_checks,
    record_checks,
    group_checks,
    client_checks,
    worker_checks,
    transaction_checks,
)
ALL = tuple(check for _, check in sorted(CHECKS.items()))
