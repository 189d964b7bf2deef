"""Checks that the packages of the extras ``spark`` and ``schemas`` are installed."""

from __future__ import annotations

from importlib.util import find_spec

from streamapp.errors import MissingExtraError

__all__ = ["missing_for_spark", "require_schemas", "require_spark"]

_SPARK = ("pyspark", "pyarrow", "pandas", "numpy")
"""Packages of the extra ``spark``. Its package ``packaging`` is left out, because aiokafka installs it, too."""


def missing_for_spark() -> list[str]:
    """The packages of the extra ``spark`` that are not installed."""
    return [name for name in _SPARK if find_spec(name) is None]


def require_schemas(package: str) -> None:
    """Raises `MissingExtraError` unless this package of the extra ``schemas`` is installed."""
    try:
        there = find_spec(package) is not None
    except (ImportError, ValueError):  # find_spec raises if the parent package is missing
        there = False
    if not there:
        raise MissingExtraError(
            f"this needs the extra schemas, and {package} is not installed: pip install 'streamapp[schemas]' "
            "(in a checkout: pip install '.[schemas]')"
        )


def require_spark() -> None:
    """Raises `MissingExtraError`, which says what to install, unless the extra ``spark`` is installed."""
    missing = missing_for_spark()
    if missing:
        raise MissingExtraError(
            f"this needs the extra spark, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            "not installed: pip install 'streamapp[spark]' (in a checkout: pip install '.[spark]')"
        )
