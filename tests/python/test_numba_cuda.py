"""numba-cuda's driver layer: contexts, device arrays, pinned memory and memory managers of one's own. Kernels are
compiled by a library that nothing here needs, so none is launched."""
import gc

import numpy as np
import pytest
from numba import cuda
from numba.cuda.cudadrv import driver

from bindings import MIB
from children import child

numbers = np.arange(MIB, dtype=np.int32).reshape(1024, 1024)


@pytest.fixture
def context():
    for gpu in cuda.gpus:  # contexts stay once they are made
        with gpu:
            pass
    return cuda.current_context()


@pytest.fixture(autouse=True)
def flushed(kept):
    """Numba frees later, in batches; what is left is looked at after they are done."""
    yield
    gc.collect()
    for gpu in cuda.gpus:
        with gpu:
            cuda.current_context().memory_manager.deallocations.clear()


def test_devices_are_found_with_their_identity(nvml):
    assert len(cuda.gpus) == 2
    for number, device in enumerate(cuda.gpus):
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        assert device.uuid == nvml.nvmlDeviceGetUUID(handle)
        assert device.compute_capability == nvml.nvmlDeviceGetCudaComputeCapability(handle)


def test_memory_information_follows_the_allocations(context, used):
    before = context.get_memory_info()
    assert before.total - before.free == used()
    memory = context.memalloc(32 * MIB)
    assert context.get_memory_info() == (before.free - 32 * MIB, before.total)
    start, end = driver.device_extents(memory)
    assert end - start == 32 * MIB
    with pytest.raises(driver.CudaAPIError, match="OUT_OF_MEMORY"):
        context.memalloc(2048 * MIB)


def test_arrays_come_back_as_they_went():
    there = cuda.to_device(numbers)
    assert np.array_equal(there.copy_to_host(), numbers)
    half = cuda.device_array_like(numbers[:512])
    half.copy_to_device(there[512:])
    assert np.array_equal(half.copy_to_host(), numbers[512:])
    driver.device_memset(half, 0, half.nbytes)
    assert not half.copy_to_host().any()
    assert np.array_equal(there.copy_to_host(), numbers)


@pytest.mark.parametrize("make", [cuda.pinned_array, cuda.mapped_array, cuda.managed_array])
def test_arrays_that_host_and_device_share(make):
    shared = make(numbers.shape, dtype=numbers.dtype)
    shared[:] = numbers
    there = cuda.device_array(numbers.shape, dtype=numbers.dtype)
    there.copy_to_device(np.asarray(shared))
    shared[:] = 0
    there.copy_to_host(np.asarray(shared))
    assert np.array_equal(shared, numbers)


def test_an_array_of_ones_own_is_pinned_for_a_while():
    own = numbers.copy()
    stream = cuda.stream()
    with cuda.pinned(own):
        there = cuda.to_device(own, stream=stream)
        own_again = there.copy_to_host(stream=stream)
        stream.synchronize()
    assert np.array_equal(own_again, numbers)
    with cuda.mapped(own) as there:
        assert np.array_equal(there.copy_to_host(), numbers)


def test_events_measure_and_order_streams():
    first, second = cuda.stream(), cuda.stream()
    begin, end = cuda.event(), cuda.event()
    begin.record(first)
    there = cuda.to_device(numbers, stream=first)
    end.record(first)
    end.wait(second)
    back = there.copy_to_host(stream=second)
    second.synchronize()
    assert np.array_equal(back, numbers)
    assert end.query()
    assert begin.elapsed_time(end) >= 0


def open_array(channel):
    with channel.recv() as theirs:
        channel.send(int(theirs.copy_to_host().sum()))
        theirs.copy_to_device(np.full(theirs.shape, 7, dtype=theirs.dtype))
    channel.send("closed")


def test_an_array_is_opened_in_a_child_by_its_handle():
    there = cuda.to_device(numbers)
    with child(open_array) as other:
        other.send(there.get_ipc_handle())
        assert other.recv() == numbers.sum()
        assert other.recv() == "closed"
    assert (there.copy_to_host() == 7).all()


def test_the_second_device_is_used_by_entering_it(used):
    before = used(1)
    here = cuda.to_device(numbers)
    with cuda.gpus[1]:
        there = cuda.to_device(numbers)
        assert used(1) >= before + numbers.nbytes
        assert cuda.current_context().can_access_peer(0)
        there.copy_to_device(here)
        assert np.array_equal(there.copy_to_host(), numbers)
    assert np.array_equal(here.copy_to_host(), numbers)


class Counting(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):
    """A memory manager that is not numba's own: it takes device memory with the driver's calls and counts."""

    taken = 0
    interface_version = 1

    def initialize(self):
        pass

    def memalloc(self, size):
        address = driver.driver.cuMemAlloc(size)
        Counting.taken += size

        def release():
            driver.driver.cuMemFree(address)
            Counting.taken -= size

        return cuda.MemoryPointer(self.context, address, size, finalizer=release)

    def get_memory_info(self):
        return cuda.MemoryInfo(free=1, total=2)


def use_another_manager(channel):
    cuda.set_memory_manager(Counting)
    there = cuda.to_device(numbers)
    channel.send(Counting.taken)
    assert np.array_equal(there.copy_to_host(), numbers)
    assert cuda.current_context().get_memory_info() == (1, 2)
    del there
    channel.send(Counting.taken)
    cuda.close()


def test_a_memory_manager_of_ones_own_takes_the_place_of_numbas():
    with child(use_another_manager) as other:
        assert other.recv() == numbers.nbytes
        assert other.recv() == 0


def close_with_arrays(channel):
    arrays = [cuda.to_device(numbers) for _ in range(3)]
    channel.send("made")
    channel.recv()
    cuda.close()
    channel.send("closed")
    channel.recv()
    assert len(arrays) == 3


def test_closing_frees_what_is_there_and_the_context(used):
    before = used()
    with child(close_with_arrays) as other:
        assert other.recv() == "made"
        assert used() > before + 3 * numbers.nbytes
        other.send("go")
        assert other.recv() == "closed"
        assert used() == before
        other.send("go")
