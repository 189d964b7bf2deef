"""One archive with all that executors need beside Spark: streamapp, its dependencies, and the application's code."""

from __future__ import annotations

import ast
import json
import sys
import tarfile
from collections.abc import Collection, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement

from streamapp.errors import ConfigError

__all__ = ["ARCHIVE_NAME", "archive_settings", "distributions", "lacking", "package"]

ARCHIVE_NAME = "app"
"""The folder in which an executor finds the unpacked archive."""

ROOTS = ("streamapp[spark]",)
FOR_SERDES = "schemas"
"""The extra for serdes of JSON Schema and Protobuf. Its installed packages come along, because an application that has
such serdes does not run here without them."""
_STREAMAPP = Path(__file__).parents[2]
ON_EXECUTORS = frozenset({"pyspark", "py4j"})
"""Distributions that are left out, because Spark has its own versions of them."""
NOT_NEEDED = ("pyarrow/include/", "pyarrow/tests/", "pandas/tests/", "numpy/_core/tests/", "__pycache__")
GZIP_LEVEL = 1
"""Level 1 takes 7 s instead of 30 s. The archive is only a tenth larger, and each executor fetches it once."""


def package(archive: Path, code: Collection[Path] = (), also: Collection[str] = ()) -> list[str]:
    """Writes an archive (``.tar.gz``) for ``spark.archives``; returns its distributions as ``name version``.

    The files come from this environment, so executors have the same versions as the driver. The executors need the same
    operating system, processor architecture and version of Python. ``code`` are packages (folders) and modules of your
    own. ``also`` names further distributions, which come with their requirements. The packages of the extra ``schemas``
    come along if they are installed.

    Raises `ConfigError` for another suffix than ``.tar.gz``, a folder that cannot be made, missing code, or a
    distribution that is not installed. An editable install of another distribution than streamapp is refused, too,
    unless ``code`` has a folder of its project.

    >>> package(Path("dist/app.tar.gz"), [Path("agents"), Path("tables")])                  # doctest: +SKIP
    ['aiohttp 3.14.5', ...]
    """
    if not archive.name.endswith(".tar.gz"):
        raise ConfigError(f"{archive} has to end with .tar.gz: Spark takes the format from the name")
    for path in code:
        if not path.is_dir() and not (path.suffix == ".py" and path.is_file()):
            raise ConfigError(f"{path} is no folder and no module (.py) here: name the packages of your code")
    found = distributions(_required(also))
    for distribution in found:
        _refuse_without_code(distribution, code)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder {archive.parent} cannot be made: {error.strerror}") from error
    # The archive is written aside: a job that is submitted meanwhile gets the old archive.
    writing = archive.with_name(archive.name + ".writing")
    with tarfile.open(writing, "w:gz", compresslevel=GZIP_LEVEL) as tar:
        for distribution in found:
            for name, path in _files(distribution):
                tar.add(path, name, recursive=False)
        for path in (_STREAMAPP, *code):
            tar.add(path.resolve(), path.resolve().name, filter=_wanted)
    writing.replace(archive)
    return [f"{distribution.name} {distribution.version}" for distribution in found]


def lacking(code: Collection[Path], also: Collection[str] = ()) -> list[str]:
    """Lines about the imports of ``code`` that an archive of `package` would lack, each with the remedy.

    An import of a module that is not found here has no line, because the code may do without the module.
    """
    packed = {_normal(distribution.name) for distribution in distributions(_required(also))} | ON_EXECUTORS
    owners = metadata.packages_distributions()
    known = {*sys.stdlib_module_names, _STREAMAPP.name, *(path.resolve().stem for path in code)}
    lines = {}
    for root in code:
        for file in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            for module in sorted(_imports(file) - known):
                beside = [
                    each for each in (root.parent / module, root.parent / f"{module}.py") if each.exists()
                ]
                if beside:
                    remedy = f"name {beside[0]}, too"
                elif module in owners and packed.isdisjoint(map(_normal, owners[module])):
                    remedy = f"add --also {owners[module][0]}"
                else:
                    continue
                known.add(module)
                lines[module] = f"{file} imports {module}, which is not in the archive: {remedy}"
    return [lines[module] for module in sorted(lines)]


def _imports(file: Path) -> set[str]:
    """The modules at the root of the import path that a file imports anywhere; none if the file is no Python."""
    try:
        parsed = ast.parse(file.read_bytes(), str(file))
    except SyntaxError:
        return set()
    found = set()
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module is not None:
            found.add(node.module)
    return {name.partition(".")[0] for name in found}


def _required(also: Collection[str]) -> list[str]:
    """The requirements of an archive."""
    extra = [
        requirement.name
        for requirement in map(Requirement, metadata.requires("streamapp") or [])
        if requirement.marker is not None and requirement.marker.evaluate({"extra": FOR_SERDES})
    ]
    return [*ROOTS, *(name for name in extra if _installed(name)), *also]


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _normal(name: str) -> str:
    """The form of a distribution's name in which names are compared."""
    return name.lower().replace("_", "-")


def archive_settings(archive: str) -> dict[str, str]:
    """Spark's settings for executors that use an archive of `package`."""
    return {"spark.archives": f"{archive}#{ARCHIVE_NAME}", "spark.executorEnv.PYTHONPATH": ARCHIVE_NAME}


def distributions(requirements: Collection[str]) -> list[metadata.Distribution]:
    """The installed distributions of some requirements and of all their requirements, in the order of their names.

    Spark's own distributions are left out. Raises `ConfigError` for a distribution that is not installed.
    """
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, by = waiting.pop()
        name = _normal(requirement.name)
        if name in ON_EXECUTORS:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise ConfigError(
                f"{name}{f', which {by} requires,' if by else ''} is not installed here: pip install {name!r}"
            ) from None
        found[name] = distribution
        for extra in {"", *requirement.extras} - {extra for n, extra in seen if n == name}:
            seen.add((name, extra))
            for text in distribution.requires or []:
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append((needed, name))
    return [found[name] for name in sorted(found)]


def _refuse_without_code(distribution: metadata.Distribution, code: Iterable[Path]) -> None:
    """Raises `ConfigError` for an editable install, whose files are elsewhere, unless ``code`` has a part of them."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if distribution.name == "streamapp" or not origin.get("dir_info", {}).get("editable"):
        return
    project = Path(unquote(urlsplit(origin["url"]).path)).resolve()
    if not any(path.resolve().is_relative_to(project) for path in code):
        raise ConfigError(
            f"{distribution.name} is an editable install, so its code is not among its files: name the package's "
            f"folder in {project}, or install the distribution without --editable"
        )


def _files(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """The files of a distribution on the import path, without scripts, editable installs and `NOT_NEEDED`."""
    for file in distribution.files or []:
        name, path = file.as_posix(), Path(str(file.locate()))
        mine = name.startswith(("../", "streamapp/")) or name.endswith(".pth")
        if not mine and not any(part in name for part in NOT_NEEDED) and path.is_file():
            yield name, path


def _wanted(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in info.name else info
