"""The Python examples, as a user starts them: those for CuPy and PyTorch under fakes of their interfaces."""
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from brokered import BUILD, broker, eventually, kept  # noqa: F401, fixtures

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "client/examples"


def run(name: str) -> str:
    """The output of the example `name`, which must succeed, and print nothing on standard error."""
    here = str(pathlib.Path(__file__).parents[1])
    path = os.pathsep.join([os.environ["PYTHONPATH"], here, os.path.join(here, "fakes")])
    ended = subprocess.run([sys.executable, EXAMPLES / name], env={**os.environ, "PYTHONPATH": path},
                           capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_blocks_and_buffers_are_borrowed():
    said = run("allocate.py")
    assert "64 MiB at 0x" in said and "refused: " in said and "limit" in said
    assert r"it begins with b'\x07\x07\x07\x07'" in said


def commands_of_readme() -> tuple[str, str]:
    """How it prepares the program that runs without a GPU, and starts it."""
    indented = re.search(r"^The complete program .*:\n\n((?:    .+\n)+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert indented
    set_up, start = indented[1].splitlines()
    return set_up.strip(), start.strip()


def test_the_readme_installs_packages_into_an_environment_of_their_own(tmp_path):
    """Debian's own Python refuses them."""
    set_up, _ = commands_of_readme()
    make, install = (shlex.split(command) for command in set_up.split(" && "))
    assert make[0] == "python3"
    subprocess.run([sys.executable, *make[1:]], cwd=tmp_path, check=True, timeout=120)
    assert "include-system-site-packages = true" in (tmp_path / "venv/pyvenv.cfg").read_text()
    pip, verb, *packages = install
    assert verb == "install" and (tmp_path / pip).exists()
    assert set(packages) <= set((pathlib.Path(__file__).parents[1] / "requirements.txt").read_text().split())
    for page in ("README.md", "docs/quickstart.md", "docs/python.md", "docs/grpc.md"):
        assert not re.search(r"(?<!venv/bin/)pip install", (ROOT / page).read_text()), page


def test_without_a_gpu_the_simulated_driver_of_the_broker_is_found(tmp_path):
    """As the README says, with no library path."""
    _, start = commands_of_readme()
    simulated = ["gpumem-sim", "run", "/run/gpumemd/driver", "venv/bin/python"]
    assert shlex.split(start, comments=True)[:4] == simulated
    runtime = tmp_path / "run"
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH",
                                                                                     "GPUMEM_SIM_MACHINE")}
    environment["GPUMEM_RUNTIME_DIR"] = str(runtime)
    broker = subprocess.Popen([BUILD / "daemon/gpumemd", "--simulate", "1x1GiB", "--runtime-dir", runtime,
                               "--log-level", "warning"], env=environment)
    try:
        eventually(lambda: subprocess.run([BUILD / "client/cli/gpumem", "status"], env=environment,
                                          capture_output=True).returncode == 0, "a broker")
        words = [sys.executable, *shlex.split(start, comments=True)[4:]]
        alone = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True)
        if alone.returncode == 0:
            pytest.skip("this machine has a driver of its own")
        ended = subprocess.run([BUILD / "sim/gpumem-sim", "run", runtime / "driver", *words], env=environment, cwd=ROOT,
                               capture_output=True, text=True, timeout=120)
        assert (ended.returncode, ended.stderr) == (0, "") and "64 MiB at 0x" in ended.stdout
        status = subprocess.run([BUILD / "sim/gpumem-sim", "run", runtime / "driver", "sh", "-c", "exit 7"])
        assert status.returncode == 7
        lost = subprocess.run([BUILD / "sim/gpumem-sim", "run", runtime / "driver", "/nonexistent"],
                              capture_output=True, text=True)
        assert lost.returncode == 1 and "cannot run /nonexistent" in lost.stderr
    finally:
        broker.terminate()
        broker.wait()


@pytest.mark.parametrize("name", ["cupy_allocate.py", "torch_allocate.py"])
def test_frameworks_borrow(name):
    said = run(name)
    assert f"is {sum(range(1 << 20))}" in said and "8388608 bytes at 0x" in said


def test_a_region_is_published_and_read():
    said = run("regions.py")
    assert "decoder.weight: float32 (1024, 1024), read-only\n" in said
    assert "decoder.running_mean: float32 (1024,), a copy\n" in said
    assert "step 7, the last weight is 1048575\n" in said and "\n6 MiB are charged\n" in said


def test_the_examples_of_the_page_on_regions_run():
    page = (EXAMPLES.parents[1] / "docs/regions-python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page.partition("## TensorFlow")[0], flags=re.S)
    assert len(blocks) == 5
    ended = subprocess.run([sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "") and "is expected: other arrays have been published" in ended.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path):
    assert len(path.read_text().splitlines()) < 60
