"""What of streamapp needs packages that a plain installation does not bring."""

from __future__ import annotations

from importlib.util import find_spec

from streamapp.errors import MissingExtraError

__all__ = ["missing_for_spark", "require_schemas", "require_spark"]

_SPARK = ("pyspark", "pyarrow", "pandas", "numpy")
"""Of the extra; packaging comes with aiokafka, too."""


def missing_for_spark() -> list[str]:
    """The packages of the extra ``spark`` that are not installed."""
    return [name for name in _SPARK if find_spec(name) is None]


def require_schemas(package: str) -> None:
    """Raises `MissingExtraError` unless a package of the extra ``schemas`` is there."""
    try:
        there = find_spec(package) is not None
    except (ImportError, ValueError):  # the package around it is not there either
        there = False
    if not there:
        raise MissingExtraError(
            f"this needs the extra schemas, and {package} is not installed: pip install 'streamapp[schemas]' "
            "(in a checkout: pip install '.[schemas]')"
        )


def require_spark() -> None:
    """Raises `MissingExtraError`, which says what to install, unless the extra ``spark`` is there."""
    missing = missing_for_spark()
    if missing:
        raise MissingExtraError(
            f"this needs the extra spark, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed: "
            "pip install 'streamapp[spark]' (in a checkout: pip install '.[spark]')"
        )
