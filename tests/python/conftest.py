"""What every test of a client relies on."""
import gc

import pynvml
import pytest


@pytest.fixture
def context():
    """Nothing. A test file whose own process reaches the device defines what it needs for that."""


@pytest.fixture(scope="session")
def nvml():
    """A second witness: the device as its administrator sees it, whatever the client under test believes."""
    pynvml.nvmlInit()
    yield pynvml
    pynvml.nvmlShutdown()


@pytest.fixture
def used(nvml):
    """used(device=0): bytes in use on a device, contexts included."""

    def ask(device: int = 0) -> int:
        memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(device))
        assert memory.used + memory.free == memory.total
        return memory.used

    return ask


@pytest.fixture(autouse=True)
def kept(context, used):
    """Every test leaves on each device exactly the memory in use that it found, contexts included."""
    before = [used(0), used(1)]
    yield
    gc.collect()
    assert [used(0), used(1)] == before, "memory in use after the test and before it"
