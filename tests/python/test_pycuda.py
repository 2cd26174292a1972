"""PyCUDA: contexts, allocations, pinned arrays, its two memory pools. Kernels need a compiler: none is launched."""
import gc

import numpy as np
import pycuda.driver as cu
import pycuda.gpuarray as gpuarray
import pytest
from pycuda.tools import DeviceMemoryPool, PageLockedMemoryPool

from bindings import MIB
from children import child

numbers = np.arange(MIB, dtype=np.int32).reshape(1024, 1024)
cu.init()


@pytest.fixture
def context():
    """PyCUDA's contexts are its own: each test makes one, and leaves none."""
    own = cu.Device(0).make_context()
    yield own
    own.pop()
    own.detach()


def test_devices_tell_their_names_addresses_and_attributes(nvml):
    assert cu.Device.count() == 2
    for number in range(2):
        device, handle = cu.Device(number), nvml.nvmlDeviceGetHandleByIndex(number)
        assert device.name() == nvml.nvmlDeviceGetName(handle)
        assert device.compute_capability() == nvml.nvmlDeviceGetCudaComputeCapability(handle)
        assert device.total_memory() == nvml.nvmlDeviceGetMemoryInfo(handle).total
        assert cu.Device(device.pci_bus_id()) == device
        assert device.get_attribute(cu.device_attribute.WARP_SIZE) == 32


def test_an_allocation_is_counted_and_freed_with_its_object(used):
    free, total = cu.mem_get_info()
    assert total - free == used()
    memory = cu.mem_alloc(48 * MIB)
    assert cu.mem_get_info() == (free - 48 * MIB, total)
    memory.free()
    assert cu.mem_get_info() == (free, total)
    with pytest.raises(cu.MemoryError):
        cu.mem_alloc(2048 * MIB)


def test_content_goes_there_and_back():
    memory = cu.mem_alloc(numbers.nbytes)
    cu.memcpy_htod(memory, numbers)
    copy, back = cu.mem_alloc(numbers.nbytes), np.empty_like(numbers)
    cu.memcpy_dtod(copy, memory, numbers.nbytes)
    cu.memcpy_dtoh(back, copy)
    assert np.array_equal(back, numbers)
    cu.memset_d8(copy, 1, 4)
    cu.memset_d32(int(copy) + 4, 5, 1)
    cu.memcpy_dtoh(back, copy)
    assert back.ravel()[:3].tolist() == [0x01010101, 5, 2]


def test_rectangles_of_rows_are_copied():
    memory, pitch = cu.mem_alloc_pitch(400, 10, 4)
    copy = cu.Memcpy2D()
    copy.set_src_host(numbers)
    copy.src_pitch = numbers.strides[0]
    copy.set_dst_device(memory)
    copy.dst_pitch, copy.width_in_bytes, copy.height = pitch, 400, 10
    copy(aligned=True)
    row = np.empty(100, np.int32)
    cu.memcpy_dtoh(row, int(memory) + 9 * pitch)
    assert np.array_equal(row, numbers[9, :100])


def test_pinned_arrays_are_copied_in_the_background():
    stream, done = cu.Stream(), cu.Event()
    pinned = cu.pagelocked_empty(numbers.shape, numbers.dtype)
    pinned[:] = numbers
    memory = cu.mem_alloc(numbers.nbytes)
    cu.memcpy_htod_async(memory, pinned, stream)
    cu.memset_d32_async(memory, 9, 1, stream)
    cu.memcpy_dtoh_async(pinned, memory, stream)
    done.record(stream)
    done.synchronize()
    assert done.query() and stream.is_done()
    assert pinned.ravel()[:3].tolist() == [9, 1, 2]
    assert np.array_equal(pinned.ravel()[1:], numbers.ravel()[1:])


def test_mapped_arrays_have_an_address_on_the_device():
    mapped = cu.pagelocked_empty(numbers.shape, numbers.dtype, mem_flags=cu.host_alloc_flags.DEVICEMAP)
    mapped[:] = numbers
    memory = cu.mem_alloc(numbers.nbytes)
    cu.memcpy_dtod(memory, mapped.base.get_device_pointer(), numbers.nbytes)
    assert np.array_equal(cu.from_device_like(memory, numbers), numbers)


def test_the_device_pool_keeps_blocks_until_they_are_wanted_back(used):
    before, pool = used(), DeviceMemoryPool()
    block = pool.allocate(4 * MIB)
    first = int(block)
    block.free()
    assert (pool.active_blocks, pool.held_blocks) == (0, 1)
    assert used() >= before + 4 * MIB
    block = pool.allocate(4 * MIB)
    assert int(block) == first, "the block is used again"
    block.free()
    pool.free_held()
    assert used() == before


def test_the_pinned_pool_makes_arrays():
    pool = PageLockedMemoryPool()
    pinned = pool.allocate(numbers.shape, numbers.dtype)
    pinned[:] = numbers
    memory = cu.to_device(pinned)
    assert np.array_equal(cu.from_device_like(memory, numbers), numbers)
    del pinned
    assert pool.held_blocks == 1
    pool.stop_holding()


def test_arrays_of_the_device_are_made_from_a_pool():
    pool = DeviceMemoryPool()
    there = gpuarray.to_gpu(numbers, allocator=pool.allocate)
    assert np.array_equal(there.get(), numbers)
    assert np.array_equal(there[512:].get(), numbers[512:])
    copy = there.copy()
    del there
    assert np.array_equal(copy.get(), numbers)
    del copy
    gc.collect()
    assert pool.active_blocks == 0
    pool.stop_holding()


def test_events_measure_the_time_between_them():
    begin, end = cu.Event().record(), cu.Event().record()
    end.synchronize()
    assert end.time_since(begin) >= 0


def test_copies_go_to_the_other_device(context):
    here = cu.to_device(numbers)
    other = cu.Device(1).make_context()
    there = cu.mem_alloc(numbers.nbytes)
    cu.memcpy_peer(there, here, numbers.nbytes, dest_context=other, src_context=context)
    assert np.array_equal(cu.from_device_like(there, numbers), numbers)
    there.free()
    other.pop()
    other.detach()


def open_handle(channel):
    own = cu.Device(0).make_context()
    theirs = cu.IPCMemoryHandle(channel.recv())
    channel.send(cu.from_device(theirs, (4,), np.int32).tolist())
    theirs.close()
    own.pop()
    own.detach()


def test_an_allocation_is_opened_in_a_child_by_its_handle():
    memory = cu.to_device(numbers[:1, :4].copy())
    with child(open_handle) as other:
        other.send(cu.mem_get_ipc_handle(memory))
        assert other.recv() == [0, 1, 2, 3]
