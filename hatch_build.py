"""Compiles the C files of streamapp where there is a C compiler; without one, streamapp runs on Python alone, slower.

The hook also writes the wheel's SBOM (PEP 770). STREAMAPP_NATIVE=no leaves the compiler out, =yes makes its failure an error.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARIES = {
    Path("streamapp/broker/_native.abi3.so"): Path("streamapp/broker/native"),
    Path("streamapp/state/_row_cache.abi3.so"): Path("streamapp/state/native"),
}
"""Each library, and the folder of its C files."""


class CompileNative(BuildHookInterface):
    """Adds the libraries to the wheel, or leaves them beside their sources for an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        build_data["sbom_files"].append(str(self._write_sbom(Path(self._folder.name))))
        native = os.environ.get("STREAMAPP_NATIVE")
        if native == "no":
            return
        try:
            for library, sources in LIBRARIES.items():
                self._compile(Path(self.root), sources, library)
        except (OSError, subprocess.SubprocessError) as error:
            told = f"{error}\n{getattr(error, 'stderr', '')}"
            if native == "yes":
                raise RuntimeError(f"the C files cannot be compiled: {told}") from error
            self.app.display_warning(f"the C files are not compiled, workers will need more CPU: {told}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["artifacts"] += [f"/{library}" for library in LIBRARIES]

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()

    def _write_sbom(self, folder: Path) -> Path:
        """The package and its requirements, as CycloneDX: the wheel brings no other code along."""
        core = self.metadata.core
        package = {
            "type": "library",
            "bom-ref": "streamapp",
            "name": core.raw_name,
            "version": self.metadata.version,
            "purl": f"pkg:pypi/{core.name}@{self.metadata.version}",
            "licenses": [{"license": {"id": core.license_expression}}],
        }
        required = [re.match(r"([\w.-]+)(.*)", text) for text in sorted(core.dependencies)]
        components = [
            {
                "type": "library",
                "bom-ref": found[1],
                "name": found[1],
                "purl": f"pkg:pypi/{found[1]}",
                "properties": [{"name": "requirement", "value": found[0]}],
            }
            for found in required
            if found
        ]
        bom = {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": package},
            "components": components,
            "dependencies": [{"ref": "streamapp", "dependsOn": [part["bom-ref"] for part in components]}],
        }
        written = folder / "streamapp.cdx.json"
        written.write_text(json.dumps(bom, indent=2) + "\n")
        return written

    def _compile(self, root: Path, folder: Path, library: Path) -> None:
        if os.name != "posix":
            raise OSError("only done on Linux and macOS")
        compiler = shlex.split(os.environ.get("CC") or "cc")
        shared = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
        include = sysconfig.get_paths()["include"]
        sources = map(str, sorted((root / folder).glob("*.c")))
        flags = [
            "-O2",
            "-Werror=implicit-function-declaration",
            "-fPIC",
            "-fvisibility=hidden",
            *shared,
            f"-I{include}",
        ]
        built = root / library.with_suffix(f".{os.getpid()}")
        try:
            subprocess.run(
                [*compiler, *flags, *sources, "-o", str(built)],
                check=True,
                capture_output=True,
                text=True,
            )
            built.replace(root / library)  # whole or not at all: a worker may have the old one loaded
        finally:
            built.unlink(missing_ok=True)
