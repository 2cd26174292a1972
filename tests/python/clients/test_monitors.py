"""Monitors in processes of their own: pynvml, gpustat and nvitop, unchanged. Beside them run two programs in slices, a job of two
processes, and a program past the broker. Their figures are held against the broker's books and the driver's own."""
import json
import os
import pathlib
import re
import subprocess
import sys

import nvitop
import pynvml
import pytest

from bindings import MIB
from brokered import BUILD, eventually

DRIVER = os.environ["GPUMEM_SIM_MACHINE"]
PROGRAM = [sys.executable, str(pathlib.Path(__file__).parents[2] / "package/system_mode/program.py"), "hold", "take"]
TWO = "import subprocess, sys\nfor one in [subprocess.Popen([*sys.argv[1:], mib]) for mib in ('32', '48')]: one.wait()"
ASK_DRIVER = """if True:
    import json, pynvml
    pynvml.nvmlInit()
    devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
    print(json.dumps([{process.pid: process.usedGpuMemory for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device)}
                      for device in devices]))"""


@pytest.fixture(autouse=True)
def kept():
    """Programs of this file end with it."""


def gpumem(*words: str) -> dict:
    done = subprocess.run([BUILD / "client/cli/gpumem", *words, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def start(*command: object, **environment: str) -> subprocess.Popen:
    return subprocess.Popen([str(word) for word in command], env={**os.environ, **environment}, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module", autouse=True)
def programs():
    shim = {"GPUMEM_SHIM_FOLDER": str(BUILD / "client/shim/lib")}
    run = [BUILD / "client/cli/gpumem", "run", "--device", "0", "--limit"]
    started = [start(*run, "256MiB", "--", *PROGRAM, 64, **shim), start(*run, "128MiB", "--", *PROGRAM, 96, **shim),
               start(*run, "128MiB", "--", sys.executable, "-c", TWO, *PROGRAM, **shim),
               start(*PROGRAM, 40, LD_LIBRARY_PATH=DRIVER)]
    for program, lines in zip(started, (1, 1, 2, 1)):
        for _ in range(lines):
            assert program.stdout.readline().startswith("init=0")
    yield started
    for program in started:
        program.communicate()
        assert program.returncode == 0


class Books:
    """What the broker and the driver know of the first device. Bytes."""

    def __init__(self) -> None:
        device = gpumem("reconcile", "--now")["devices"][0]
        asked = subprocess.run([sys.executable, "-c", ASK_DRIVER], env={**os.environ, "LD_LIBRARY_PATH": DRIVER},
                               capture_output=True, text=True, check=True)
        contexts = {int(pid): used for pid, used in json.loads(asked.stdout)[0].items()}
        self.processes = dict(contexts)
        lent = 0
        for session in gpumem("ps")["sessions"]:
            for part in [*session["slices"], *session["shared"]]:
                if part["device"] == device["device"]:
                    lent += part["charged"]
                    self.processes[session["pid"]] += part["charged"]
        self.used = device["used"] - device["extents"] + lent


@pytest.fixture(scope="module")
def books(programs) -> Books:
    return Books()


def test_the_books_have_five_programs(books):
    assert len(books.processes) == 5
    assert books.used == sum(books.processes.values()) >= (64 + 96 + 32 + 48 + 40) * MIB


def test_pynvml_shows_the_device_with_what_each_process_borrows(nvml, books):
    device, idle = (nvml.nvmlDeviceGetHandleByIndex(number) for number in range(2))
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    assert (memory.total, memory.used, memory.free) == (1024 * MIB, books.used, 1024 * MIB - books.used)
    newer = nvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
    assert (newer.total, newer.used) == (1024 * MIB, books.used)
    listed = nvml.nvmlDeviceGetComputeRunningProcesses(device)
    assert {process.pid: process.usedGpuMemory for process in listed} == books.processes
    assert nvml.nvmlDeviceGetMemoryInfo(idle).used == 0
    assert nvml.nvmlDeviceGetComputeRunningProcesses(idle) == []


def test_gpustat_shows_the_same(books):
    shown = subprocess.run([sys.executable, "-m", "gpustat", "--json"], capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    device, idle = json.loads(shown.stdout)["gpus"]
    assert (device["memory.total"], device["memory.used"]) == (1024, books.used // MIB)
    assert {process["pid"]: process["gpu_memory_usage"] for process in device["processes"]} == {
        pid: used // MIB for pid, used in books.processes.items()}
    assert (idle["memory.total"], idle["memory.used"], idle["processes"]) == (1024, 0, [])


def test_nvitop_shows_the_same(books):
    device = nvitop.Device(0)
    assert (device.memory_total(), device.memory_used()) == (1024 * MIB, books.used)
    assert {pid: process.gpu_memory() for pid, process in device.processes().items()} == books.processes
    shown = subprocess.run([sys.executable, "-m", "nvitop", "--once", "--no-unicode"], capture_output=True, text=True,
                           env={**os.environ, "COLUMNS": "100"}, check=True)
    assert shown.stderr == ""
    assert "0B / 1024MiB" in shown.stdout
    for pid in books.processes:
        assert re.search(rf"\b{pid}\b", shown.stdout), shown.stdout


def test_a_program_that_ends_is_shown_no_longer(programs, nvml):
    programs[0].communicate()
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    eventually(lambda: nvml.nvmlDeviceGetMemoryInfo(device).used == Books().used < 300 * MIB, "its memory is not free")
    assert len(nvml.nvmlDeviceGetComputeRunningProcesses(device)) == 4
