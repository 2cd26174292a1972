"""TensorFlow from the package index, unchanged, on a slice: what tensorflow_program.py finds, by both ways to use the
drop-in driver. The program reaches it by TensorFlow's own stubs of libcuda and, for its devices, by stand_ins/cudart.cc."""
import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest

from brokered import eventually

MIB = 1 << 20
HERE = pathlib.Path(__file__).parent
BUILD = pathlib.Path(os.environ["GPUMEM_BUILD"])
SHIM = pathlib.Path(os.environ["GPUMEM_SHIM_FOLDER"])
STAND_INS = BUILD / "tests/python/stand_ins"
WAYS = {
    "LD_LIBRARY_PATH": {"LD_LIBRARY_PATH": f"{SHIM}:{STAND_INS}"},
    "LD_PRELOAD": {"LD_LIBRARY_PATH": str(STAND_INS), "LD_PRELOAD": f"{SHIM}/libcuda.so.1"},
}


def charged_to(pid: int) -> list[int]:
    """The broker's charges to the slices of the process `pid`, the largest first."""
    listed = subprocess.run([BUILD / "client/cli/gpumem", "ps", "--json"], capture_output=True, text=True, check=True)
    slices = [one for session in json.loads(listed.stdout)["sessions"] if session["pid"] == pid
              for one in session["slices"]]
    return sorted((one["charged"] for one in slices), reverse=True)


def end(program: subprocess.Popen) -> None:
    """Ends it, and waits until the broker has its memory back: until then it counts as used by this process's job."""
    program.stdin.close()
    assert program.wait() == 0
    eventually(lambda: not any(charged_to(program.pid)), "the program's memory back at the broker")


@functools.cache
def on_tensorflow(way: str, growth: bool) -> tuple[dict, list[int]]:
    """The program's report, and the broker's charges to it. The program starts once for each way and setting."""
    settings = {**WAYS[way], "TF_FORCE_GPU_ALLOW_GROWTH": str(growth).lower(), "TF_CPP_MIN_LOG_LEVEL": "2"}
    with subprocess.Popen([sys.executable, HERE / "tensorflow_program.py"], env={**os.environ, **settings},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        line = program.stdout.readline()
        charged = charged_to(program.pid) if line else []
        end(program)
    return json.loads(line), charged


@pytest.mark.parametrize("way", WAYS)
def test_the_first_region_is_the_whole_limit_and_charged_to_the_slice(way):
    found, charged = on_tensorflow(way, growth=False)
    assert found["devices"] == ["gpumem simulated GPU"] * 2
    assert found["total"] == 640 * MIB  # the slice's limit, not the device's memory
    kept_free = int(os.environ["TF_DEVICE_MIN_SYS_MEMORY_IN_MB"]) * MIB
    assert found["limit"] == found["used"] == found["total"] - kept_free
    assert charged[0] >= found["limit"]
    assert found["tensor"].endswith("GPU:0") and found["is_whole"]


@pytest.mark.parametrize("way", WAYS)
def test_stubs_that_tensorflow_exports_reach_the_slice(way):
    found, _ = on_tensorflow(way, growth=True)
    assert found["taken"] == 16 * MIB


def test_regions_grow_with_what_is_needed():
    found, charged = on_tensorflow("LD_LIBRARY_PATH", growth=True)
    assert found["current"] <= found["used"] <= 16 * MIB
    assert found["used"] <= charged[0] < found["limit"]


def test_a_tensor_over_the_limit_is_refused_and_the_program_goes_on():
    found, _ = on_tensorflow("LD_LIBRARY_PATH", growth=True)
    assert "Dst tensor is not initialized" in found["refused"]


def test_the_package_sets_the_limit_of_the_slice_and_memory_grows_within_it():
    package = {"PYTHONPATH": str(HERE.parents[2] / "client/python/src"), "TF_CPP_MIN_LOG_LEVEL": "2",
               "GPUMEM_LIBRARY": str(BUILD / "client/libgpumem.so.0"), "TF_FORCE_GPU_ALLOW_GROWTH": "false"}
    with subprocess.Popen([sys.executable, HERE / "tensorflow_limits_program.py"],
                          env={**os.environ, **WAYS["LD_LIBRARY_PATH"], **package}, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as program:
        found = json.loads(program.stdout.readline())
        charged = charged_to(program.pid)
        program.stdin.write("fragment\n")
        program.stdin.flush()
        afterwards = json.loads(program.stdout.readline())
        charged_afterwards = charged_to(program.pid)
        end(program)
    limit = (640 - 128) * MIB  # the slice's, without what is left to libraries
    assert found["limits"] == {f"/physical_device:GPU:{number}": limit for number in range(2)}
    assert [found["seen"][f"/device:GPU:{number}"] for number in range(2)] == [limit] * 2
    assert "at the program's beginning" in found["late"]
    assert found["device"].endswith("GPU:0") and 4 * MIB <= charged[0] < 64 * MIB
    # 384 MiB in small pieces do not stand in the way of 448 MiB in one: their regions went back to the slice
    assert afterwards["pieces"] and afterwards["large"] and afterwards["device"].endswith("GPU:0")
    assert 448 * MIB <= charged_afterwards[0] <= limit
