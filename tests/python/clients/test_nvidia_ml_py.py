"""nvidia-ml-py (pynvml): the devices as monitoring programs see them."""
import os

import pynvml
import pytest

from bindings import MIB, ok, use
from children import child


@pytest.fixture
def context(nvml):
    """Monitoring has no context, and makes none."""


@pytest.fixture
def handle(nvml):
    return nvml.nvmlDeviceGetHandleByIndex(0)


def test_versions_are_told(nvml):
    assert nvml.nvmlSystemGetDriverVersion()
    assert nvml.nvmlSystemGetNVMLVersion()
    assert nvml.nvmlSystemGetCudaDriverVersion_v2() >= 13000


def test_devices_are_found_by_number_uuid_and_bus(nvml):
    assert nvml.nvmlDeviceGetCount() == 2
    for number in range(2):
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        assert nvml.nvmlDeviceGetIndex(handle) == number
        by_uuid = nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(handle))
        by_bus = nvml.nvmlDeviceGetHandleByPciBusId(nvml.nvmlDeviceGetPciInfo(handle).busId)
        assert nvml.nvmlDeviceGetIndex(by_uuid) == nvml.nvmlDeviceGetIndex(by_bus) == number
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByIndex(2)
    with pytest.raises(pynvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")


def test_memory_adds_up_in_both_versions_of_the_question(nvml, handle):
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    assert (memory.total, memory.used) == (1024 * MIB, 0)
    newer = nvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    assert newer.total == newer.free + newer.used + newer.reserved == memory.total


def test_nothing_runs_where_nobody_has_a_context(nvml, handle):
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    assert nvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []
    assert nvml.nvmlDeviceGetPersistenceMode(handle) == pynvml.NVML_FEATURE_ENABLED


def hold(channel, size):
    from cuda.bindings import driver as cu

    use(0)
    channel.send(os.getpid())
    address = ok(cu.cuMemAlloc(size))
    channel.send("held")
    channel.recv()
    ok(cu.cuMemFree(address))
    ok(cu.cuDevicePrimaryCtxRelease(0))


def test_processes_are_listed_with_what_they_hold(nvml, handle):
    with child(hold, 64 * MIB) as one, child(hold, 128 * MIB) as other:
        pids = one.recv(), other.recv()
        assert (one.recv(), other.recv()) == ("held", "held")
        held = {process.pid: process.usedGpuMemory for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        assert sorted(held) == sorted(pids)
        assert held[pids[1]] - held[pids[0]] == 64 * MIB
        assert sum(held.values()) == nvml.nvmlDeviceGetMemoryInfo(handle).used
        assert nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(1)) == []
        assert "python" in nvml.nvmlSystemGetProcessName(pids[0])
        for process in one, other:
            process.send("go")
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []


def test_questions_before_the_beginning_are_refused(nvml, handle):
    nvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 2
