"""The scenarios, a module for each kind of fault."""

from __future__ import annotations

import pkgutil
from importlib import import_module

__all__ = ["load"]


def load() -> None:
    """Imports all modules with scenarios, which add their cases to `matrix.cases`."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
