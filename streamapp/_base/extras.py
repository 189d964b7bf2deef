"""Checks that the packages of extras are installed."""

from __future__ import annotations

from importlib.util import find_spec

from streamapp.errors import MissingExtraError

__all__ = ["missing_for_spark", "require_oidc", "require_schemas", "require_secure", "require_spark"]

_SPARK = ("pyspark", "pyarrow", "pandas", "numpy")
"""Packages of the extra ``spark``. Its package ``packaging`` is left out, because aiokafka installs it, too."""


def missing_for_spark() -> list[str]:
    """The packages of the extra ``spark`` that are not installed."""
    return [name for name in _SPARK if find_spec(name) is None]


def require_schemas(package: str) -> None:
    """Raises `MissingExtraError` unless this package of the extra ``schemas`` is installed."""
    _require("schemas", package)


def require_secure(package: str) -> None:
    """Raises `MissingExtraError` unless this package of the extra ``secure`` is installed."""
    _require("secure", package)


def require_oidc(package: str) -> None:
    """Raises `MissingExtraError` unless this package of the extra ``oidc`` is installed."""
    _require("oidc", package)


def _require(extra: str, package: str) -> None:
    try:
        there = find_spec(package) is not None
    except (ImportError, ValueError):  # find_spec raises if the parent package is missing
        there = False
    if not there:
        raise MissingExtraError(
            f"this needs the extra {extra}, and {package} is not installed: pip install 'streamapp[{extra}]' "
            f"(in a checkout: pip install '.[{extra}]')"
        )


def require_spark() -> None:
    """Raises `MissingExtraError`, which says what to install, unless the extra ``spark`` is installed."""
    missing = missing_for_spark()
    if missing:
        raise MissingExtraError(
            f"this needs the extra spark, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            "not installed: pip install 'streamapp[spark]' (in a checkout: pip install '.[spark]')"
        )
