"""The Python examples, as a user starts them: those for CuPy and PyTorch under fakes of their interfaces."""
import os
import pathlib
import subprocess
import sys

import pytest

from brokered import broker, kept  # noqa: F401, fixtures

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "client/examples"


@pytest.fixture
def context():
    """None here: the examples have them."""


def run(name: str) -> str:
    """What it prints; it must succeed, and say nothing on standard error."""
    here = str(pathlib.Path(__file__).parent)
    path = os.pathsep.join([os.environ["PYTHONPATH"], here, os.path.join(here, "fakes")])
    ended = subprocess.run([sys.executable, EXAMPLES / name], env={**os.environ, "PYTHONPATH": path},
                           capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_blocks_and_buffers_are_borrowed():
    said = run("allocate.py")
    assert "64 MiB at 0x" in said and "refused: " in said and "limit" in said
    assert r"it begins with b'\x07\x07\x07\x07'" in said


@pytest.mark.parametrize("name", ["cupy_allocate.py", "torch_allocate.py"])
def test_frameworks_borrow(name):
    said = run(name)
    assert f"is {sum(range(1 << 20))}" in said and "8388608 bytes at 0x" in said


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path):
    assert len(path.read_text().splitlines()) < 60
