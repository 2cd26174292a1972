"""gpustat: its figures and its table."""
import json
import os
import subprocess
import sys

import gpustat
import pytest
from cuda.bindings import driver as cu

from bindings import MIB, ok, use


@pytest.fixture
def context():
    use(0)
    yield
    ok(cu.cuDevicePrimaryCtxRelease(0))


def gpustat_says(*arguments: str) -> str:
    """What the program prints. It must complain of nothing."""
    shown = subprocess.run([sys.executable, "-m", "gpustat", *arguments], capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    return shown.stdout


def test_memory_is_what_the_process_may_use(context):
    free, total = ok(cu.cuMemGetInfo())
    before = gpustat.GPUStatCollection.new_query()[0]
    assert before.memory_total == total // MIB
    address = ok(cu.cuMemAlloc(64 * MIB))
    assert gpustat.GPUStatCollection.new_query()[0].memory_used - before.memory_used == 64
    ok(cu.cuMemFree(address))


def test_figures_are_complete(context):
    said = json.loads(gpustat_says("--json"))
    assert said["driver_version"] == "580.0.0"
    assert [gpu["index"] for gpu in said["gpus"]] == [0, 1]
    one = said["gpus"][0]
    assert one["name"] == "gpumem simulated GPU"
    assert (one["temperature.gpu"], one["utilization.gpu"], one["power.draw"]) == (35, 0, 75)
    assert one["memory.total"] == ok(cu.cuMemGetInfo())[1] // MIB
    processes = {process["pid"]: process for process in one["processes"]}
    assert os.getpid() in processes
    assert "gpumemd" not in [process["command"] for process in processes.values()], "the broker, which holds what all borrow"


def test_its_table_shows_every_device(context):
    lines = gpustat_says("--show-all", "--no-color").splitlines()
    devices = [line for line in lines if "gpumem simulated GPU" in line]
    assert len(devices) == 2
    total = ok(cu.cuMemGetInfo())[1] // MIB
    assert all("35°C" in line and f"/ {total:5} MB" in line for line in devices)
