"""Compiles the C files of streamapp where there is a C compiler; without one, streamapp runs on Python alone, slower."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("streamapp/broker/native")
LIBRARY = SOURCES.with_name("_native.abi3.so")


class CompileNative(BuildHookInterface):
    """Adds the library to the wheel, or leaves it beside its source for an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            self._compile(Path(self.root))
        except (OSError, subprocess.SubprocessError) as error:
            self.app.display_warning(f"{SOURCES} is not compiled, workers will need more CPU: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["artifacts"].append(f"/{LIBRARY}")

    def _compile(self, root: Path) -> None:
        if os.name != "posix":
            raise OSError("only done on Linux and macOS")
        compiler = shlex.split(os.environ.get("CC") or "cc")
        shared = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
        include = sysconfig.get_paths()["include"]
        sources = map(str, sorted((root / SOURCES).glob("*.c")))
        flags = [
            "-O2",
            "-Werror=implicit-function-declaration",
            "-fPIC",
            "-fvisibility=hidden",
            *shared,
            f"-I{include}",
        ]
        built = root / LIBRARY.with_suffix(f".{os.getpid()}")
        try:
            subprocess.run(
                [*compiler, *flags, *sources, "-o", str(built)],
                check=True,
                capture_output=True,
                text=True,
            )
            built.replace(root / LIBRARY)  # whole or not at all: a worker may have the old one loaded
        finally:
            built.unlink(missing_ok=True)
