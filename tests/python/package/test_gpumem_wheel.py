"""The package as it is installed: a wheel, built without network, and its types."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

from brokered import broker, kept  # noqa: F401, fixtures

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "client/python"
USE = """
import gpumem
assert gpumem.__file__.startswith('%s')
with gpumem.Session.connect() as session, session.open_allocator() as allocator, allocator.allocate(1 << 20) as block:
    print(gpumem.version(), block.size)
"""


def run(*command, **environment) -> str:
    ended = subprocess.run(list(map(str, command)), env={**os.environ, **environment}, capture_output=True, text=True,
                           timeout=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_wheel_is_built_installed_and_used(tmp_path):
    sources = shutil.copytree(PACKAGE, tmp_path / "sources")  # building leaves folders there
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index", "-w", tmp_path, sources)
    [wheel] = tmp_path.glob("gpumemd-*-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"gpumem/{path.name}" for path in (PACKAGE / "src/gpumem").iterdir() if path.is_file()} <= set(names)
    target = tmp_path / "installed"
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel)
    version, size = run(sys.executable, "-c", USE % target, PYTHONPATH=str(target)).split()
    assert wheel.name.startswith(f"gpumemd-{version}-") and size == str(1 << 20)


def test_a_wheel_with_the_library_inside_needs_nothing_else(tmp_path):
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    sources = shutil.copytree(PACKAGE, tmp_path / "sources")
    run(*pip, "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index", "-w", tmp_path, sources)
    [pure] = tmp_path.glob("gpumemd-*-py3-none-any.whl")
    made = run(sys.executable, PACKAGE / "wheel.py", pure, os.environ["GPUMEM_LIBRARY"], tmp_path).strip()
    assert re.search(r"-py3-none-manylinux_2_\d+_x86_64\.whl$", made)
    fresh = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", fresh)
    run(*pip, "--python", fresh / "bin/python", "install", "--quiet", "--no-deps", "--no-index", made)
    [inside] = fresh.glob("lib/python3*/site-packages/gpumem/libgpumem.so.0")
    program = f"import gpumem._library; assert gpumem._library.path() == '{inside}'" + USE % fresh
    _, size = run(fresh / "bin/python", "-c", program, GPUMEM_LIBRARY="", PYTHONPATH="").split()
    assert size == str(1 << 20)


def test_it_is_typed_throughout(tmp_path):
    said = run(sys.executable, "-m", "mypy", "--config-file", PACKAGE / "pyproject.toml", "--cache-dir", tmp_path,
               PACKAGE / "src/gpumem", MYPYPATH=str(PACKAGE / "src"))
    assert "no issues found" in said
