"""cuda-core on memory of gpumem: its MemoryResource."""
import gc

import gpumem
import gpumem.cuda_core
import pytest
from cuda.bindings import driver as cu

from bindings import MIB, ok
from brokered import broker, eventually, kept  # noqa: F401, the first and the last are fixtures
from core import content, context, device, stream  # noqa: F401, the last three are fixtures


@pytest.fixture
def session(context, broker):  # noqa: F811
    with gpumem.Session.connect(label="buffers") as session:
        yield session


@pytest.fixture
def resource(session):
    with session.open_allocator(limit=64 * MIB) as allocator:
        yield gpumem.cuda_core.MemoryResource(allocator)


def test_buffers_are_copied_and_filled(resource, stream):
    source = resource.allocate(4 * MIB, stream=stream)
    source.fill(b"\1\2\3\4", stream=stream)
    copy = source.copy_to(stream=stream)
    assert (copy.size, copy.device_id, copy.memory_resource) == (4 * MIB, 0, resource)
    assert copy.is_device_accessible and not copy.is_host_accessible and not copy.is_managed
    assert content(copy, stream) == b"\1\2\3\4" * MIB
    assert resource.allocator.statistics().in_use == 8 * MIB
    assert {info.stream for info in resource.allocator.snapshot()} == {int(stream.handle)}
    source.close(stream)
    copy.close()
    assert resource.allocator.statistics().in_use == 0


def test_a_forgotten_buffer_is_free_and_outlives_the_resource(session, stream):
    allocator = session.open_allocator()
    buffer = gpumem.cuda_core.MemoryResource(allocator).allocate(2 * MIB, stream=stream)
    buffer.fill(6, stream=stream)
    gc.collect()
    assert content(buffer, stream) == bytes([6]) * 2 * MIB
    with pytest.raises(gpumem.FailedPrecondition, match="in use"):
        allocator.close()
    del buffer
    gc.collect()
    assert allocator.statistics().in_use == 0
    allocator.close()


def test_memory_is_behind_the_work_of_a_stream_that_was_closed(device, resource):
    flag = ok(cu.cuMemAlloc(4))
    ok(cu.cuMemsetD32(flag, 0, 1))
    limit = resource.allocator.limit
    ended, other, opener = (device.create_stream() for _ in range(3))
    buffer = resource.allocate(limit, stream=ended)
    wait = cu.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
    ok(cu.cuStreamWaitValue32(int(ended.handle), flag, 1, wait))
    buffer.close(stream=ended)
    ended.close()
    again = resource.allocate(limit, stream=other)
    behind = cu.cuStreamQuery(int(other.handle))[0]
    ok(cu.cuStreamWriteValue32(int(opener.handle), flag, 1, 0))
    other.sync()
    assert behind == cu.CUresult.CUDA_ERROR_NOT_READY
    again.close()
    for one in other, opener:
        one.close()
    ok(cu.cuMemFree(flag))


def test_a_device_allocates_by_it(device, resource, stream):
    before = device.memory_resource
    device.memory_resource = resource
    try:
        with device.allocate(MIB, stream=stream) as buffer:
            assert buffer.memory_resource is resource
            assert resource.allocator.statistics().in_use == MIB
        assert resource.allocate(0, stream=stream).size == 0
    finally:
        device.memory_resource = before


def test_out_of_memory_is_explained(resource, stream):
    with pytest.raises(gpumem.OutOfMemory, match="limit"), resource.allocate(48 * MIB, stream=stream):
        resource.allocate(48 * MIB, stream=stream)
    assert resource.allocator.statistics().in_use == 0


def test_its_memory_goes_back_to_the_broker(resource, stream, broker):
    resource.allocate(16 * MIB, stream=stream).close()
    assert broker.lent() >= 16 * MIB
    assert resource.allocator.trim() >= 16 * MIB
    eventually(lambda: broker.lent() == 0, "nothing lent")
