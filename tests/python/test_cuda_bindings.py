"""NVIDIA's cuda-bindings: the driver's calls as they are, within one process."""
import ctypes
import threading
import uuid

import pytest
from cuda.bindings import driver as cu

from bindings import (MIB, READ, READ_WRITE, extent_properties, location, mapped, ok, pointer_figure, pool_figure,
                      pool_of, read, unmap, use, write)


@pytest.fixture
def context():
    use(0)


def test_errors_have_their_names_and_texts():
    assert ok(cu.cuGetErrorName(cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY)) == b"CUDA_ERROR_OUT_OF_MEMORY"
    assert ok(cu.cuGetErrorString(cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY))
    assert cu.cuDeviceGet(2)[0] == cu.CUresult.CUDA_ERROR_INVALID_DEVICE
    assert cu.cuMemFree(12345)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE


def test_devices_are_told_apart_by_uuid_and_by_bus(nvml):
    for device in range(ok(cu.cuDeviceGetCount())):
        name = uuid.UUID(bytes=ok(cu.cuDeviceGetUuid(device)).bytes)
        assert f"GPU-{name}" == nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(device))
        bus = ok(cu.cuDeviceGetPCIBusId(32, device))
        assert int(ok(cu.cuDeviceGetByPCIBusId(bus))) == device


def test_memory_information_adds_up_and_agrees_with_nvml(nvml, used):
    free, total = ok(cu.cuMemGetInfo())
    assert total == ok(cu.cuDeviceTotalMem(0)) == 1024 * MIB
    assert total - free == used()
    address = ok(cu.cuMemAlloc(64 * MIB))
    assert ok(cu.cuMemGetInfo()) == (free - 64 * MIB, total)
    start, size = ok(cu.cuMemGetAddressRange(int(address) + 5 * MIB))
    assert (int(start), size) == (int(address), 64 * MIB)
    ok(cu.cuMemFree(address))
    assert ok(cu.cuMemGetInfo()) == (free, total)


def test_a_full_device_refuses_and_loses_nothing(used):
    before = used()
    assert cu.cuMemAlloc(1025 * MIB)[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    assert cu.cuMemCreate(1024 * MIB, extent_properties(), 0)[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    assert used() == before


def test_an_extent_is_mapped_twice_and_counted_once(used):
    before = used()
    handle = ok(cu.cuMemCreate(8 * MIB, extent_properties(), 0))
    first, second = mapped(handle, 8 * MIB), mapped(handle, 8 * MIB, READ)
    assert used() == before + 8 * MIB
    write(first, b"seen at both addresses")
    assert read(second, 22) == b"seen at both addresses"
    assert int(ok(cu.cuMemGetAccess(location(0), first))) == READ_WRITE
    assert int(ok(cu.cuMemGetAccess(location(0), second))) == READ
    assert cu.cuMemsetD8(second, 1, 1)[0] != cu.CUresult.CUDA_SUCCESS
    ok(cu.cuMemRelease(handle))
    again = ok(cu.cuMemRetainAllocationHandle(int(first)))
    assert ok(cu.cuMemGetAllocationPropertiesFromHandle(again)).location.id == 0
    ok(cu.cuMemRelease(again))
    unmap(first, 8 * MIB)
    assert used() == before + 8 * MIB
    unmap(second, 8 * MIB)


def test_streams_wait_for_one_anothers_events():
    first, second = ok(cu.cuStreamCreate(1)), ok(cu.cuStreamCreate(1))
    address, done = ok(cu.cuMemAlloc(MIB)), ok(cu.cuEventCreate(0))
    reached, go = threading.Event(), threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def hold(_):
        reached.set()
        go.wait()

    ok(cu.cuLaunchHostFunc(first, cu.CUhostFn(_ptr=ctypes.addressof(hold)), 0))
    ok(cu.cuMemsetD8Async(address, 1, MIB, first))
    ok(cu.cuEventRecord(done, first))
    ok(cu.cuStreamWaitEvent(second, done, 0))
    ok(cu.cuMemsetD8Async(address, 2, MIB, second))
    reached.wait()
    before = cu.cuStreamQuery(second)[0], cu.cuEventQuery(done)[0]
    go.set()
    assert before == (cu.CUresult.CUDA_ERROR_NOT_READY, cu.CUresult.CUDA_ERROR_NOT_READY)
    ok(cu.cuStreamSynchronize(second))
    ok(cu.cuEventQuery(done))
    assert read(address, MIB) == bytes([2]) * MIB
    ok(cu.cuMemFree(address))
    for stream in first, second:
        ok(cu.cuStreamDestroy(stream))
    ok(cu.cuEventDestroy(done))


def test_streams_tell_what_they_were_made_with():
    least, greatest = ok(cu.cuCtxGetStreamPriorityRange())
    assert least >= greatest
    stream = ok(cu.cuStreamCreateWithPriority(1, greatest))
    assert ok(cu.cuStreamGetPriority(stream)) == greatest
    assert ok(cu.cuStreamGetFlags(stream)) == 1
    assert int(ok(cu.cuStreamGetCtx(stream))) == int(ok(cu.cuCtxGetCurrent()))
    assert ok(cu.cuStreamIsCapturing(stream)) == cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
    ok(cu.cuStreamDestroy(stream))


def test_events_measure_unless_made_without_timing():
    timed = [ok(cu.cuEventCreate(0)) for _ in range(2)]
    for event in timed:
        ok(cu.cuEventRecord(event, 0))
        ok(cu.cuEventSynchronize(event))
    assert ok(cu.cuEventElapsedTime(*timed)) >= 0
    untimed = ok(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    ok(cu.cuEventRecord(untimed, 0))
    assert cu.cuEventElapsedTime(timed[0], untimed)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
    for event in *timed, untimed:
        ok(cu.cuEventDestroy(event))


def test_a_pool_keeps_what_its_threshold_says_and_gives_it_back_when_trimmed(used):
    before = used()
    pool = pool_of(handle_type=cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE)
    threshold = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    assert pool_figure(pool, "RELEASE_THRESHOLD") == 0
    ok(cu.cuMemPoolSetAttribute(pool, threshold, cu.cuuint64_t(1 << 40)))
    stream = ok(cu.cuStreamCreate(1))
    addresses = [ok(cu.cuMemAllocFromPoolAsync(16 * MIB, pool, stream)) for _ in range(2)]
    ok(cu.cuStreamSynchronize(stream))
    assert pool_figure(pool, "USED_MEM_CURRENT") == 32 * MIB
    assert used() - before == pool_figure(pool, "RESERVED_MEM_CURRENT") >= 32 * MIB
    for address in addresses:
        ok(cu.cuMemFreeAsync(address, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert pool_figure(pool, "USED_MEM_CURRENT") == 0
    assert pool_figure(pool, "USED_MEM_HIGH") == 32 * MIB
    assert used() - before == pool_figure(pool, "RESERVED_MEM_CURRENT") >= 32 * MIB
    ok(cu.cuMemPoolTrimTo(pool, 0))
    assert pool_figure(pool, "RESERVED_MEM_CURRENT") == 0
    assert used() == before
    ok(cu.cuMemPoolDestroy(pool))
    ok(cu.cuStreamDestroy(stream))


def test_memory_of_the_default_pool_is_ordered_by_its_stream(used):
    before, stream = used(), ok(cu.cuStreamCreate(1))
    assert int(ok(cu.cuDeviceGetDefaultMemPool(0))) == int(ok(cu.cuDeviceGetMemPool(0)))
    address = ok(cu.cuMemAllocAsync(4 * MIB, stream))
    ok(cu.cuMemsetD32Async(address, 0x01020304, MIB, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert read(address, 4) == bytes([4, 3, 2, 1])
    assert int(pointer_figure(address, "MEMPOOL_HANDLE")) == int(ok(cu.cuDeviceGetDefaultMemPool(0)))
    ok(cu.cuMemFreeAsync(address, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert used() == before, "the default pool's threshold is 0"
    ok(cu.cuStreamDestroy(stream))


@pytest.mark.parametrize("flags", [0, cu.CU_MEMHOSTALLOC_PORTABLE | cu.CU_MEMHOSTALLOC_DEVICEMAP])
def test_pinned_memory_is_the_hosts_and_known_to_the_device(used, flags):
    before = used()
    host = ok(cu.cuMemHostAlloc(MIB, flags))
    assert used() == before
    ctypes.memset(host, 7, MIB)
    address = ok(cu.cuMemAlloc(MIB))
    ok(cu.cuMemcpyHtoDAsync(address, host, MIB, 0))
    ok(cu.cuMemsetD8Async(address, 9, 10, 0))
    ok(cu.cuMemcpyDtoHAsync(host, address, MIB, 0))
    ok(cu.cuStreamSynchronize(0))
    assert ctypes.string_at(host, MIB) == bytes([9]) * 10 + bytes([7]) * (MIB - 10)
    assert pointer_figure(int(host), "MEMORY_TYPE") == cu.CUmemorytype.CU_MEMORYTYPE_HOST
    assert int(ok(cu.cuMemHostGetDevicePointer(host, 0))) == int(host)
    ok(cu.cuMemFreeHost(host))
    ok(cu.cuMemFree(address))


def test_registered_memory_is_pinned_until_it_is_unregistered():
    host = ctypes.create_string_buffer(b"of the program itself", 64 * 1024)
    address = ctypes.addressof(host)
    ok(cu.cuMemHostRegister(address, len(host), cu.CU_MEMHOSTREGISTER_DEVICEMAP))
    assert cu.cuMemHostRegister(address, len(host), 0)[0] == cu.CUresult.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
    assert pointer_figure(address, "MEMORY_TYPE") == cu.CUmemorytype.CU_MEMORYTYPE_HOST
    ok(cu.cuMemHostUnregister(address))
    assert cu.cuMemHostUnregister(address)[0] == cu.CUresult.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED


def test_pointers_tell_their_allocation():
    address = ok(cu.cuMemAlloc(4 * MIB))
    inside = int(address) + MIB
    assert pointer_figure(inside, "MEMORY_TYPE") == cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    assert pointer_figure(inside, "DEVICE_ORDINAL") == 0
    assert int(pointer_figure(inside, "RANGE_START_ADDR")) == int(address)
    assert pointer_figure(inside, "RANGE_SIZE") == 4 * MIB
    assert not pointer_figure(inside, "IS_MANAGED")
    assert int(pointer_figure(inside, "CONTEXT")) == int(ok(cu.cuCtxGetCurrent()))
    ok(cu.cuMemFree(address))
    gone = cu.cuPointerGetAttribute(cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside)
    assert gone[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE


def test_rectangles_are_copied_row_by_row():
    address, pitch = ok(cu.cuMemAllocPitch(100, 8, 4))
    assert pitch >= 100
    rows = bytes(range(100)) * 8
    copy = cu.CUDA_MEMCPY2D()
    copy.srcMemoryType, copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST, cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcHost, copy.srcPitch, copy.dstDevice, copy.dstPitch = rows, 100, address, pitch
    copy.WidthInBytes, copy.Height = 100, 8
    ok(cu.cuMemcpy2D(copy))
    assert read(int(address) + 7 * pitch, 100) == bytes(range(100))
    ok(cu.cuMemFree(address))
