"""NVIDIA's cuda-bindings: memory shared by several processes and by several devices."""
import os
import signal

import pytest
from cuda.bindings import driver as cu

from bindings import (FD, MIB, access, extent_properties, from_bytes, mapped, ok, pool_figure, pool_of, read, to_bytes,
                      unmap, use, write)
from children import child, receive_fd, send_fd


@pytest.fixture
def context():
    use(0)


def import_and_answer(channel):
    use(0)
    fd = receive_fd(channel)
    handle = ok(cu.cuMemImportFromShareableHandle(fd, FD))
    os.close(fd)
    address = mapped(handle, 4 * MIB)
    ok(cu.cuMemRelease(handle))
    channel.send(read(address, 11))
    write(int(address) + MIB, b"from the child")
    channel.send("written")
    channel.recv()
    unmap(address, 4 * MIB)


def test_an_extent_is_shared_over_a_socket_and_lives_while_anybody_maps_it(used):
    with child(import_and_answer) as other:
        handle = ok(cu.cuMemCreate(4 * MIB, extent_properties(), 0))
        address = mapped(handle, 4 * MIB)
        write(address, b"from parent")
        fd = ok(cu.cuMemExportToShareableHandle(handle, FD, 0))
        send_fd(other, fd)
        os.close(fd)
        assert other.recv() == b"from parent"
        assert other.recv() == "written"
        assert read(int(address) + MIB, 14) == b"from the child"
        with_both = used()
        unmap(address, 4 * MIB)
        ok(cu.cuMemRelease(handle))
        assert used() == with_both, "the child still maps it"
        other.send("go")


def copy_to_another_device(channel):
    use(0)
    opened = ok(cu.cuIpcOpenMemHandle(from_bytes(cu.CUipcMemHandle, channel.recv()),
                                      cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
    use(1)
    there = ok(cu.cuMemAlloc(MIB))
    ok(cu.cuMemcpyDtoD(there, opened, MIB))
    channel.send(read(there, 11))
    ok(cu.cuMemFree(there))
    use(0)
    ok(cu.cuIpcCloseMemHandle(opened))


def test_what_another_process_shares_is_copied_to_a_device_that_is_used_later():
    block = ok(cu.cuMemAlloc(MIB))
    write(block, b"from parent")
    with child(copy_to_another_device) as other:
        other.send(to_bytes(ok(cu.cuIpcGetMemHandle(block))))
        assert other.recv() == b"from parent"
    ok(cu.cuMemFree(block))


def import_pool(channel):
    use(0)
    fd = receive_fd(channel)
    pool = ok(cu.cuMemPoolImportFromShareableHandle(fd, FD, 0))
    os.close(fd)
    address = ok(cu.cuMemPoolImportPointer(pool, from_bytes(cu.CUmemPoolPtrExportData, channel.recv())))
    channel.send(read(address, 13))
    ok(cu.cuMemsetD8(address, 5, 2 * MIB))
    assert cu.cuMemAllocFromPoolAsync(MIB, pool, 0)[0] != cu.CUresult.CUDA_SUCCESS
    ok(cu.cuMemFreeAsync(address, 0))
    ok(cu.cuStreamSynchronize(0))
    ok(cu.cuMemPoolDestroy(pool))
    channel.send("done")


def test_a_pool_and_its_pointers_are_imported_by_a_child():
    pool = pool_of()
    address = ok(cu.cuMemAllocFromPoolAsync(2 * MIB, pool, 0))
    ok(cu.cuStreamSynchronize(0))
    write(address, b"out of a pool")
    with child(import_pool) as other:
        fd = ok(cu.cuMemPoolExportToShareableHandle(pool, FD, 0))
        send_fd(other, fd)
        os.close(fd)
        other.send(to_bytes(ok(cu.cuMemPoolExportPointer(address))))
        assert other.recv() == b"out of a pool"
        assert other.recv() == "done"
    assert read(address, 2 * MIB) == bytes([5]) * 2 * MIB
    assert pool_figure(pool, "USED_MEM_CURRENT") == 2 * MIB
    ok(cu.cuMemFreeAsync(address, 0))
    ok(cu.cuStreamSynchronize(0))
    ok(cu.cuMemPoolDestroy(pool))


def open_by_ticket(channel):
    use(0)
    ticket = from_bytes(cu.CUipcMemHandle, channel.recv())
    address = ok(cu.cuIpcOpenMemHandle(ticket, cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
    channel.send(read(address, 16))
    write(address, b"answered by ipc.")
    ok(cu.cuIpcCloseMemHandle(address))
    assert cu.cuMemcpyDtoH(bytearray(1), address, 1)[0] != cu.CUresult.CUDA_SUCCESS
    channel.send("closed")


def test_an_allocation_is_opened_by_its_legacy_ticket_in_a_child():
    address = ok(cu.cuMemAlloc(MIB))
    write(address, b"asked by ticket.")
    ticket = ok(cu.cuIpcGetMemHandle(address))
    with child(open_by_ticket) as other:
        other.send(to_bytes(ticket))
        assert other.recv() == b"asked by ticket."
        assert other.recv() == "closed"
    assert read(address, 16) == b"answered by ipc."
    ok(cu.cuMemFree(address))


def record_event(channel):
    use(0)
    event = ok(cu.cuIpcOpenEventHandle(from_bytes(cu.CUipcEventHandle, channel.recv())))
    channel.send(cu.cuEventQuery(event)[0].name)
    ok(cu.cuEventSynchronize(event))
    ok(cu.cuEventDestroy(event))


def test_an_event_is_shared_with_a_child():
    flags = cu.CUevent_flags.CU_EVENT_INTERPROCESS | cu.CUevent_flags.CU_EVENT_DISABLE_TIMING
    event = ok(cu.cuEventCreate(flags))
    ok(cu.cuEventRecord(event, 0))
    ok(cu.cuEventSynchronize(event))
    with child(record_event) as other:
        other.send(to_bytes(ok(cu.cuIpcGetEventHandle(event))))
        assert other.recv() == "CUDA_SUCCESS"
    ok(cu.cuEventDestroy(event))


def hold_until_killed(channel):
    use(0)
    ok(cu.cuMemAlloc(128 * MIB))
    channel.send(os.getpid())
    channel.recv()


def test_a_killed_process_gives_everything_back(nvml, used):
    before = used()
    with pytest.raises(AssertionError, match="the child failed"), child(hold_until_killed) as other:
        pid = other.recv()
        assert used() >= before + 128 * MIB
        listed = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0))
        assert {process.pid: process.usedGpuMemory for process in listed}[pid] >= 128 * MIB
        os.kill(pid, signal.SIGKILL)
    assert used() == before


def test_copies_go_from_device_to_device():
    assert ok(cu.cuDeviceCanAccessPeer(0, 1)) == 1
    here = ok(cu.cuCtxGetCurrent())
    near = ok(cu.cuMemAlloc(MIB))
    ok(cu.cuMemsetD8(near, 3, MIB))
    there = ok(cu.cuDevicePrimaryCtxRetain(1))
    ok(cu.cuCtxPushCurrent(there))
    far = ok(cu.cuMemAlloc(MIB))
    ok(cu.cuMemcpyPeer(far, there, near, here, MIB))
    assert read(far, MIB) == bytes([3]) * MIB
    ok(cu.cuMemFree(far))
    ok(cu.cuCtxPopCurrent())
    ok(cu.cuMemFree(near))
    ok(cu.cuDevicePrimaryCtxRelease(1))


def test_an_extent_is_opened_to_the_other_device_by_its_access():
    handle = ok(cu.cuMemCreate(2 * MIB, extent_properties(device=1), 0))
    address = mapped(handle, 2 * MIB, device=1)
    assert cu.cuMemcpyHtoD(address, b"x", 1)[0] != cu.CUresult.CUDA_SUCCESS
    ok(cu.cuMemSetAccess(address, 2 * MIB, [access(0), access(1)], 2))
    write(address, b"x")
    assert read(address, 1) == b"x"
    unmap(address, 2 * MIB)
    ok(cu.cuMemRelease(handle))
