"""NVIDIA's cuda-core: buffers, pools and events of several processes and several devices."""
import ctypes
import os

import pytest
from cuda.bindings import driver as cu
from cuda.core import (Buffer, Device, DeviceMemoryResource, DeviceMemoryResourceOptions, EventOptions,
                       PinnedMemoryResource, PinnedMemoryResourceOptions, VirtualMemoryResource)

from bindings import FD, MIB, mapped, ok
from children import child, receive_fd, send_fd
from core import content, context, device, stream  # noqa: F401, the last three are fixtures


def offer_virtual(channel):
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    buffer = VirtualMemoryResource(device).allocate(4 * MIB, stream=stream)
    buffer.fill(b"\5\6", stream=stream)
    stream.sync()
    handle = ok(cu.cuMemRetainAllocationHandle(int(buffer.handle)))
    send_fd(channel, ok(cu.cuMemExportToShareableHandle(handle, FD, 0)))
    channel.recv()
    assert content(buffer, stream) == bytes([9]) * 4 * MIB


def take_virtual(channel):
    Device(0).set_current()
    stream = Device(0).create_stream()
    fd = receive_fd(channel)
    handle = ok(cu.cuMemImportFromShareableHandle(fd, FD))
    os.close(fd)
    buffer = Buffer.from_handle(mapped(handle, 4 * MIB), 4 * MIB)
    channel.send(content(buffer, stream)[:4])
    buffer.fill(9, stream=stream)
    stream.sync()
    channel.send("filled")


def test_a_virtual_buffer_is_shared_by_its_descriptor():
    with child(offer_virtual) as owner, child(take_virtual) as other:
        fd = receive_fd(owner)
        send_fd(other, fd)
        os.close(fd)
        assert other.recv() == b"\5\6\5\6"
        assert other.recv() == "filled"
        owner.send("look")


def write_into(channel, pool):
    """The pool came by multiprocessing, which imported it; so does the buffer, which needs a context."""
    device = Device(0)
    device.set_current()
    stream, buffer = device.create_stream(), channel.recv()
    assert pool.is_mapped and buffer.is_mapped
    channel.send(content(buffer, stream)[:4])
    buffer.fill(b"\7", stream=stream)
    stream.sync()
    with pytest.raises(TypeError, match="mapped"):
        pool.allocate(MIB, stream=stream)
    channel.send(buffer.size)
    buffer.close(stream)
    stream.sync()


def test_buffers_of_a_shared_pool_go_to_a_child_by_multiprocessing(device, stream):
    options = DeviceMemoryResourceOptions(ipc_enabled=True, max_size=32 * MIB)
    pool = DeviceMemoryResource(device, options=options)
    buffer = pool.allocate(2 * MIB, stream=stream)
    buffer.fill(b"\3\4", stream=stream)
    stream.sync()
    with child(write_into, pool) as other:
        other.send(buffer)
        assert other.recv() == b"\3\4\3\4"
        assert other.recv() == 2 * MIB
    assert content(buffer, stream) == b"\7" * 2 * MIB
    buffer.close(stream)
    stream.sync()
    pool.close()


def write_into_pinned(channel, pool):
    Device(0).set_current()
    stream, buffer = Device(0).create_stream(), channel.recv()
    channel.send(ctypes.string_at(int(buffer.handle), 4))
    ctypes.memset(int(buffer.handle), 5, buffer.size)
    channel.send("filled")
    buffer.close(stream)
    stream.sync()


def test_host_memory_of_a_shared_pool_goes_to_a_child(stream):
    pool = PinnedMemoryResource(options=PinnedMemoryResourceOptions(ipc_enabled=True))
    buffer = pool.allocate(MIB, stream=stream)
    buffer.fill(b"\1\2\3\4", stream=stream)
    stream.sync()
    with child(write_into_pinned, pool) as other:
        other.send(buffer)
        assert other.recv() == b"\1\2\3\4"
        assert other.recv() == "filled"
    assert ctypes.string_at(int(buffer.handle), MIB) == bytes([5]) * MIB
    buffer.close(stream)
    pool.close()


def test_a_pool_is_opened_to_the_other_device(device, stream):
    pool = DeviceMemoryResource(device, options=DeviceMemoryResourceOptions())
    pool.peer_accessible_by = [1]
    assert [peer.device_id for peer in pool.peer_accessible_by] == [1]
    buffer = pool.allocate(2 * MIB, stream=stream)
    buffer.fill(8, stream=stream)
    stream.sync()
    Device(1).set_current()
    far = Device(1).create_stream()
    assert content(buffer, far) == bytes([8]) * 2 * MIB
    Device(0).set_current()
    buffer.close(stream)
    stream.sync()
    pool.close()


def wait_for(channel):
    Device(0).set_current()
    event = channel.recv()
    event.sync()
    channel.send(event.is_done)


def test_an_event_of_several_processes_is_waited_for_in_a_child(device):
    stream = device.create_stream()
    event = stream.record(options=EventOptions(ipc_enabled=True))
    with child(wait_for) as other:
        other.send(event)
        assert other.recv() is True
    stream.close()
