#!/usr/bin/env python3
"""Installs the files of the package python3-gpumem into an empty folder, and looks at them as pip does.

Usage: python_distribution.py CMAKE BUILD. pip lists the distribution gpumemd with the data of pyproject.toml, and does not
install it a second time.
"""
import ast
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "client/python"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def run(*command: str, **environment: str) -> str:
    ended = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def declared(key: str) -> str:
    """A text of [project] in pyproject.toml."""
    [value] = re.findall(rf'^{key} = "(.*?)"', (PACKAGE / "pyproject.toml").read_text(), re.M)
    return value


def version() -> str:
    [value] = re.findall(r"^__version__ = (.*)$", (PACKAGE / "src/gpumem/_version.py").read_text(), re.M)
    return ast.literal_eval(value)


def check(folder: pathlib.Path) -> None:
    [found] = importlib.metadata.distributions(path=[str(folder)])
    about = found.metadata
    assert (about["Name"], found.version) == ("gpumemd", version()), (about["Name"], found.version)
    assert about["Name"] == declared("name")
    assert about["Summary"] == declared("description")
    assert about["Requires-Python"] == declared("requires-python")
    assert (folder / "gpumem/__init__.py").exists()
    if subprocess.run([*PIP, "--version"], capture_output=True).returncode != 0:
        print("pip is not installed (Debian: python3-pip): only the metadata was read")
        return
    assert f"gpumemd=={version()}" in run(*PIP, "list", "--format=freeze", f"--path={folder}").split()
    # Without an index pip can install nothing, so it succeeds only if nothing is missing. Debian's pip
    # refuses to work outside a virtual environment, even with --dry-run, without the variable.
    said = run(*PIP, "install", "--no-index", "--dry-run", "gpumemd", PYTHONPATH=str(folder), PIP_BREAK_SYSTEM_PACKAGES="1")
    assert "Requirement already satisfied: gpumemd" in said, said


def main() -> int:
    cmake, build = sys.argv[1:]
    with tempfile.TemporaryDirectory() as root:
        run(cmake, "--install", build, "--prefix", root, "--component", "python3-gpumem")
        check(pathlib.Path(root) / "lib/python3/dist-packages")
    print("pip finds gpumemd where Debian's package installs it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
