"""gpumem in one process with packages that bring large native libraries of their own. The process runs in the
environment COEXISTENCE_PYTHON, which has the package COEXISTENCE_PACKAGE. See coexistence/program.py."""
import os
import pathlib
import subprocess
import tempfile

import pytest

from brokered import broker, eventually, kept  # noqa: F401, fixtures

HERE = pathlib.Path(__file__).parent
PROGRAM = HERE / "coexistence/program.py"
PROTO = HERE.parents[1] / "proto"
PYTHON = os.environ["COEXISTENCE_PYTHON"]
PACKAGE = os.environ["COEXISTENCE_PACKAGE"]
# What packages say of themselves.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "GRPC_VERBOSITY": "NONE",
         "PYTHONWARNINGS": "ignore:os.fork", "JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A folder with the Python code of the broker's gRPC interface."""
    folder = tmp_path_factory.mktemp("generated")
    if PACKAGE == "grpcio":
        files = sorted(path.relative_to(PROTO) for path in PROTO.glob("gpumem/v1/*.proto"))
        subprocess.run([PYTHON, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--python_out={folder}",
                        f"--grpc_python_out={folder}", *files], check=True)
    return folder


@pytest.fixture
def run(generated):
    """run(FIRST, LINKAGE, SCENARIO): the process must succeed, and gpumem must be silent."""

    def run(first: str, linkage: str, scenario: str) -> None:
        environment = {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(generated)])}
        if linkage == "bind-now":
            environment["LD_BIND_NOW"] = "1"
        with tempfile.TemporaryFile() as said:
            ended = subprocess.run(
                [PYTHON, PROGRAM, PACKAGE, first, linkage, scenario], pass_fds=[said.fileno()], capture_output=True,
                text=True, env={**environment, "COEXISTENCE_STDERR": str(said.fileno())}, timeout=280)
            said.seek(0)
            gpumem_said = said.read().decode()
        failed = ended.returncode != 0 or gpumem_said or ended.stdout != "done\n"
        assert not failed, f"status {ended.returncode}, {ended.stdout}\n{gpumem_said}\nand before:\n{ended.stderr}"

    return run


@pytest.mark.parametrize("linkage", ["default", "global", "bind-now"])
@pytest.mark.parametrize("first", ["package", "gpumem"])
def test_both_work_in_one_process_and_its_forked_children(run, broker, first, linkage):
    run(first, linkage, "fork")
    eventually(broker.at_rest, "a broker at rest")


@pytest.mark.parametrize("method", ["multiprocessing-fork", "forkserver", "spawn"])
def test_children_of_multiprocessing_borrow(run, broker, method):
    run("package", "default", method)
    eventually(broker.at_rest, "a broker at rest")


@pytest.mark.parametrize("first", ["package", "gpumem"])
def test_a_fork_amid_calls_of_other_threads_hangs_nobody(run, broker, first):
    run(first, "default", "threads")
    eventually(broker.at_rest, "a broker at rest")
