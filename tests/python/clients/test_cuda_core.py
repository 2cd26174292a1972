"""NVIDIA's cuda-core: its devices, buffers and memory resources, within one process."""
import ctypes

import pytest
from cuda.bindings import driver as cu
from cuda.core import (Device, DeviceMemoryResource, DeviceMemoryResourceOptions, EventOptions,
                       LegacyPinnedMemoryResource, PinnedMemoryResource, PinnedMemoryResourceOptions, StreamOptions,
                       VirtualMemoryResource, VirtualMemoryResourceOptions)

from bindings import MIB, ok
from children import child
from core import content, context, device, stream  # noqa: F401, the last three are fixtures


def test_a_device_tells_its_properties(device, nvml):
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert device.name == nvml.nvmlDeviceGetName(handle)
    assert f"GPU-{device.uuid}" == nvml.nvmlDeviceGetUUID(handle)
    assert device.compute_capability == nvml.nvmlDeviceGetCudaComputeCapability(handle)
    assert device.properties.virtual_memory_management_supported
    assert device.properties.memory_pools_supported
    assert device.properties.handle_type_posix_file_descriptor_supported
    assert device.properties.multiprocessor_count > 0
    assert len(Device.get_all_devices()) == 2


def test_buffers_of_the_devices_own_resource_are_copied_and_filled(device, stream):
    source = device.allocate(4 * MIB, stream=stream)
    source.fill(b"\1\2\3\4", stream=stream)
    copy = source.copy_to(stream=stream)
    assert (copy.size, copy.device_id) == (4 * MIB, 0)
    assert copy.is_device_accessible and not copy.is_host_accessible
    assert content(copy, stream) == b"\1\2\3\4" * MIB
    source.close(stream)
    copy.close(stream)
    stream.sync()
    # This resource raises the threshold of the driver's own pool, which then keeps what it has.
    ok(cu.cuMemPoolTrimTo(ok(cu.cuDeviceGetMemPool(0)), 0))


def test_a_pool_of_ones_own_counts_what_is_taken_from_it(device, stream, used):
    before = used()
    pool = DeviceMemoryResource(device, options=DeviceMemoryResourceOptions(max_size=64 * MIB))
    assert pool.is_handle_owned and not pool.is_ipc_enabled
    buffers = [pool.allocate(8 * MIB, stream=stream) for _ in range(3)]
    stream.sync()
    assert pool.attributes.used_mem_current == 24 * MIB
    assert used() - before == pool.attributes.reserved_mem_current >= 24 * MIB
    with pytest.raises(Exception, match="OUT_OF_MEMORY"):
        pool.allocate(128 * MIB, stream=stream)
    for buffer in buffers:
        buffer.close(stream)
    stream.sync()
    assert pool.attributes.used_mem_current == 0
    assert pool.attributes.used_mem_high == 24 * MIB
    pool.close()


def test_buffers_outlive_the_resource_they_are_from(device, stream, used):
    before = used()
    pool = DeviceMemoryResource(device, options=DeviceMemoryResourceOptions())
    buffer = pool.allocate(2 * MIB, stream=stream)
    buffer.fill(6, stream=stream)
    pool.close()
    del pool
    assert content(buffer, stream) == bytes([6]) * 2 * MIB
    buffer.close(stream)
    stream.sync()
    assert used() == before


def test_pinned_memory_is_accessible_on_both_sides(stream):
    buffer = LegacyPinnedMemoryResource().allocate(MIB, stream=stream)
    assert buffer.is_host_accessible and buffer.is_device_accessible
    buffer.fill(4, stream=stream)
    stream.sync()
    assert ctypes.string_at(int(buffer.handle), MIB) == bytes([4]) * MIB
    buffer.close()


def test_a_pinned_pool_takes_nothing_from_the_device(stream, used):
    before = used()
    pool = PinnedMemoryResource(options=PinnedMemoryResourceOptions())
    buffer = pool.allocate(2 * MIB, stream=stream)
    buffer.fill(b"\1\2", stream=stream)
    stream.sync()
    assert ctypes.string_at(int(buffer.handle), 2 * MIB) == b"\1\2" * MIB
    assert buffer.is_host_accessible and buffer.is_device_accessible
    assert used() == before
    buffer.close(stream)
    pool.close()


def grow(channel):
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    resource = VirtualMemoryResource(device, config=VirtualMemoryResourceOptions(granularity="recommended"))
    buffer = resource.allocate(4 * MIB, stream=stream)
    buffer.fill(1, stream=stream)
    stream.sync()
    buffer = resource.modify_allocation(buffer, 12 * MIB)
    assert buffer.size == 12 * MIB
    assert content(buffer, stream)[: 4 * MIB] == bytes([1]) * 4 * MIB
    buffer.fill(2, stream=stream)
    assert content(buffer, stream) == bytes([2]) * 12 * MIB
    channel.send("grown")
    channel.recv()
    buffer.close()


def test_a_virtual_buffer_grows_and_keeps_its_content(used):
    """In a child, since this resource of cuda-core 1.2 never lets go of the handles it creates, on any driver: the
    memory is free again when the process ends."""
    before = used()
    with child(grow) as other:
        assert other.recv() == "grown"
        assert used() >= before + 12 * MIB
        other.send("close")
    assert used() == before


def test_streams_have_priorities_and_wait_for_each_other(device):
    high = device.create_stream(options=StreamOptions(priority=-1))
    low = device.create_stream(options=StreamOptions(priority=0, nonblocking=True))
    assert (high.priority, low.priority) == (-1, 0)
    assert low.is_nonblocking
    assert high.device.device_id == 0
    low.wait(high.record())
    low.sync()
    high.close()
    low.close()


def test_events_measure_the_time_between_them(device, stream):
    timed = EventOptions(timing_enabled=True)
    begin = stream.record(options=timed)
    buffer = device.memory_resource.allocate(MIB, stream=stream)
    buffer.fill(0, stream=stream)
    buffer.close(stream)
    end = stream.record(options=timed)
    end.sync()
    assert begin.is_done and end.is_done
    assert end - begin >= 0
    with pytest.raises(RuntimeError, match="timing"):
        end - stream.record()
    stream.sync()
    ok(cu.cuMemPoolTrimTo(ok(cu.cuDeviceGetMemPool(0)), 0))
