"""nvitop, as a library and as its user sees it: the devices, their memory as the process may use it, and who holds it."""
import os
import re
import subprocess
import sys

import nvitop
import pytest
from cuda.bindings import driver as cu

from bindings import MIB, ok, use


@pytest.fixture
def context():
    use(0)
    yield
    ok(cu.cuDevicePrimaryCtxRelease(0))


@pytest.fixture
def device():
    return nvitop.Device(0)


def test_the_device_is_told_in_full(device):
    assert nvitop.Device.driver_version() == "580.0.0"
    assert nvitop.Device.count() == 2
    assert device.name() == "gpumem simulated GPU"
    assert device.bus_id() == "00000000:01:00.0"
    assert device.uuid().startswith("GPU-")
    assert device.temperature() == 35
    assert device.performance_state() == "P0"
    assert device.power_status() == "75W / 700W"
    assert device.total_volatile_uncorrected_ecc_errors() == 0
    assert device.as_snapshot().max_clock_infos.sm == 1980


def test_memory_is_what_the_process_may_use(context, device):
    free, total = ok(cu.cuMemGetInfo())
    assert device.memory_total() == total
    before = device.memory_used()
    address = ok(cu.cuMemAlloc(64 * MIB))
    assert device.memory_used() - before == 64 * MIB
    assert device.memory_free() == device.memory_total() - device.memory_used()
    ok(cu.cuMemFree(address))
    assert device.memory_used() == before


def test_the_own_process_is_listed(context, device):
    assert os.getpid() in device.processes()
    assert "pytest" in device.processes()[os.getpid()].command()
    address = ok(cu.cuMemAlloc(64 * MIB))
    assert device.processes()[os.getpid()].gpu_memory() == device.memory_used()
    ok(cu.cuMemFree(address))
    assert not [pid for pid, process in device.processes().items() if process.name() == "gpumemd"]


def test_its_table_shows_every_device_and_complains_of_nothing(context, device):
    shown = subprocess.run([sys.executable, "-m", "nvitop", "--once", "--no-unicode"], capture_output=True, text=True,
                           env={**os.environ, "COLUMNS": "100"}, check=True)
    assert shown.stderr == ""
    assert "Driver Version: 580.0.0" in shown.stdout
    total = re.escape(device.memory_total_human())
    assert len(re.findall(rf"35C +P0 +75W / 700W \| +\S+ / {total} \|", shown.stdout)) == 2, shown.stdout
    assert re.search(rf"\b{os.getpid()}\b", shown.stdout), shown.stdout
