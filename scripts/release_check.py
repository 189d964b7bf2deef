"""The slow proofs of a release: `first-use` of the built wheel, and a `matrix` of Pythons and dependencies.

Run `scripts/build-wheels` before. Each proof makes its environments, and uv's cache, in a temporary folder: uv keeps
1.3 GB for each time it looks at PySpark's sdist. `matrix 3.12` and `matrix 3.11 lowest-direct` run a part of the
matrix, because the whole matrix takes many minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
UV = str(BIN / "uv")
PYTHONS = ("3.11", "3.12", "3.13")
SUITES = ("tests/unit", "tests/conformance/test_cases.py")
README = ROOT / "README.md"


def run(*command: str, **options: object) -> None:
    print("$", *command, flush=True)
    subprocess.run(command, check=True, **options)  # type: ignore[call-overload]


def wheel(kind: str) -> Path:
    found = sorted((ROOT / "dist").glob(f"*{kind}*.whl"))
    if len(found) != 1:
        sys.exit(f"dist/ has {len(found)} wheels of kind {kind}: run scripts/build-wheels")
    return found[0]


@contextmanager
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        os.environ["UV_CACHE_DIR"] = f"{name}/uv"
        yield Path(name)


def environment(folder: Path, python: str) -> Path:
    run(UV, "venv", "--quiet", "--no-python-downloads", "--python", python, str(folder), env=_every_python())
    return folder / "bin" / "python"


def _every_python() -> dict[str, str]:
    """The environment with all versions of pyenv: its shims hide all but one, and a Python would be left out."""
    if (pyenv := shutil.which("pyenv")) is None:
        return dict(os.environ)
    versions = subprocess.run(
        [pyenv, "versions", "--bare"], capture_output=True, text=True, check=True
    ).stdout.split()
    return {**os.environ, "PYENV_VERSION": ":".join(versions)}


def first_use() -> None:
    """Installs each wheel where no compiler is, and runs the Python of the README with it.

    With the manylinux wheel, the commands at the beginning of the README run, too.
    """
    with temporary() as folder:
        tools = folder / "tools"
        tools.mkdir()
        for tool in (
            "bash",
            "sh",
            "env",
            "printf",
            "curl",
            "java",
            "cat",
            "sleep",
            "uname",
            "dirname",
            "readlink",
        ):
            if found := shutil.which(tool):
                (tools / tool).symlink_to(found)
        for kind in ("none-any", "manylinux"):
            python = environment(folder / kind, "3.11")
            bare = {**os.environ, "PATH": f"{python.parent}:{tools}"}
            assert shutil.which("cc", path=bare["PATH"]) is shutil.which("gcc", path=bare["PATH"]) is None
            install = [
                UV,
                "pip",
                "install",
                "--quiet",
                "--only-binary",
                ":all:",
                "--no-binary",
                "pyspark",
                "--python",
                str(python),
            ]
            run(*install, f"{wheel(kind)}[spark]", env=bare)
            run(str(python), "-c", _DRIVER, cwd=folder, env=bare)
        _as_the_readme_says(folder / "application", bare)


_DRIVER = "\n".join(re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL))


def _as_the_readme_says(folder: Path, environ: dict[str, str]) -> None:
    """Runs the first blocks of the README in an empty folder: writes the application, and types the commands."""
    folder.mkdir()
    text = README.read_text().split("## See it work")[0]
    (folder / "departures.py").write_text(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0])
    commands = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[0]
    *typed, question = [line for line in commands.splitlines() if line]
    script = "\n".join(
        [
            "set -e",
            *typed,
            "worker=$!",
            "trap 'kill $worker; wait $worker || true; streamapp broker stop' EXIT",
            f"for _ in $(env seq 120 2>/dev/null || echo {' '.join(map(str, range(120)))}); do",
            f"  if answer=$({question} --silent --fail) && [[ $answer == *start* ]]; then break; fi; sleep 1",
            "done",
            'echo "answer: $answer"',
            "[[ $answer == *1* ]]",
        ]
    )
    run("bash", "-c", script, cwd=folder, env=environ, timeout=600)


def matrix(*wanted: str) -> None:
    """Runs the suites with the newest dependencies on each Python, and with the lowest on the oldest Python.

    Leaves out a Python that this machine does not have. With ``wanted``, only the runs that have all of these words: a
    Python, a resolution.
    """
    every = [(PYTHONS[0], "lowest-direct"), *((python, "highest") for python in PYTHONS)]
    chosen = [each for each in every if {*wanted} <= {*each}]
    if not chosen:
        sys.exit(f"the matrix has no run {' '.join(wanted)}; it has {every}")
    failed = []
    with temporary() as folder:
        for python, resolution in chosen:
            title = f"Python {python}, {resolution}"
            try:
                interpreter = environment(folder / f"{python}-{resolution}", python)
            except subprocess.CalledProcessError:
                print(f"--- {title}: no such Python on this machine, left out", flush=True)
                continue
            pins = folder / f"{python}-{resolution}.txt"
            compiled = [UV, "pip", "compile", "--quiet", "pyproject.toml", "--extra", "dev"]
            run(*compiled, "--resolution", resolution, "--python-version", python, "-o", str(pins), cwd=ROOT)
            install = [UV, "pip", "install", "--quiet", "--python", str(interpreter)]
            run(*install, "--requirement", str(pins))
            run(*install, "--no-deps", str(wheel("manylinux")))
            # Not `python -m pytest`: this command would import streamapp from the checkout, not from the wheel.
            tests = [str(interpreter.parent / "pytest"), "-q", "-p", "no:cacheprovider", *SUITES]
            print(f"--- {title}", flush=True)
            if subprocess.run([*tests, "--numprocesses", "2"], cwd=ROOT).returncode:
                failed.append(title)
            shutil.rmtree(folder / f"{python}-{resolution}")
            shutil.rmtree(folder / "uv")
    if failed:
        sys.exit(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    {"first-use": first_use, "matrix": matrix}[sys.argv[1]](*sys.argv[2:])
