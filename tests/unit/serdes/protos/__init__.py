"""Classes that protoc generates from the .proto files here, made when they are imported."""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc_tools
from grpc_tools import protoc

__all__ = ["compiled", "fleet", "measures", "shop"]

HERE = Path(__file__).parent


def compiled(folder: Path, name: str) -> Any:
    """The module of a .proto file in a folder; modules of other versions need other file names."""
    include = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="protos-") as out:
        arguments = ["protoc", f"-I{folder}", f"-I{include}", f"--python_out={out}", f"{name}.proto"]
        assert protoc.main(arguments) == 0, arguments
        sys.path.insert(0, out)
        try:
            return import_module(f"{name}_pb2")
        finally:
            sys.path.remove(out)


shop = compiled(HERE, "shop")
fleet = compiled(HERE, "fleet")
measures = compiled(HERE, "measures")
