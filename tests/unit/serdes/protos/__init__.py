"""Classes that protoc generates from the .proto files here, made when they are imported."""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

import grpc_tools
from grpc_tools import protoc

__all__ = ["compiled", "fleet", "measures", "shop"]

HERE = Path(__file__).parent


def compiled(folder: Path, name: str) -> Any:
    """The module of a .proto file in a folder; modules of other versions need other file names.

    The module lies beside the .proto file for good, because tests hand it to Spark's executors, which are killed. Several
    processes may make the same module at once, so each replaces the file as a whole.
    """
    include = Path(grpc_tools.__file__).parent / "_proto"
    out = folder / "__pycache__"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as fresh:
        arguments = ["protoc", f"-I{folder}", f"-I{include}", f"--python_out={fresh}", f"{name}.proto"]
        assert protoc.main(arguments) == 0, arguments
        module = Path(fresh) / f"{name}_pb2.py"
        module.replace(out / module.name)
    invalidate_caches()
    sys.path.insert(0, str(out))
    try:
        return import_module(f"{name}_pb2")
    finally:
        sys.path.remove(str(out))


shop = compiled(HERE, "shop")
fleet = compiled(HERE, "fleet")
measures = compiled(HERE, "measures")
