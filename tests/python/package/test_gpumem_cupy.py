"""The adapters for CuPy, under a fake of its interface. Each test is a process of its own."""
import sys

import pytest

from bindings import MIB
from brokered import broker, eventually, kept  # noqa: F401, the first and the last are fixtures
from children import child


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    monkeypatch.setattr(sys, "path", ["fakes", *sys.path])  # which children have from their parent


def allocate_on_streams(channel):
    import cupy
    import gpumem
    import gpumem.cupy
    import numpy as np

    with gpumem.Session.connect() as session, session.open_allocator(limit=64 * MIB) as allocator:
        cupy.cuda.set_allocator(gpumem.cupy.allocator(allocator))
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            there = cupy.arange(MIB)
        other = cupy.arange(1000, dtype=np.int32)
        assert {(info.bytes, info.stream) for info in allocator.snapshot()} == {(8 * MIB, stream.ptr), (4000, 0)}
        assert np.array_equal(there.get(), np.arange(MIB)) and other.sum() == 499500
        assert cupy.arange(0).nbytes == 0
        with pytest.raises(MemoryError, match="limit"):
            cupy.arange(7 * MIB), cupy.arange(7 * MIB)
        cupy.cuda.Device(1).use()
        with pytest.raises(gpumem.InvalidArgument, match="open one"):
            cupy.arange(10)
        cupy.cuda.Device(0).use()
        del there, other
        assert allocator.statistics().in_use == 0
    channel.send("done")


def test_arrays_come_and_go_on_cupys_current_stream():
    with child(allocate_on_streams) as other:
        assert other.recv() == "done"


def allocate_on_many_streams(channel):
    import cupy
    import gpumem
    import gpumem.cupy

    with gpumem.Session.connect() as session, session.open_allocator(limit=64 * MIB) as allocator:
        cupy.cuda.set_allocator(gpumem.cupy.allocator(allocator))
        for number in range(5000):  # more than an allocator knows at a time
            with cupy.cuda.Stream():
                assert cupy.arange(100).sum() == 4950
        kept = cupy.arange(1000)
        cupy.cuda.set_allocator(None)
        assert kept.sum() == 499500
        del kept
    channel.send("done")


def test_streams_come_and_go():
    with child(allocate_on_many_streams) as other:
        assert other.recv() == "done"


def keep_streams(channel):
    import cupy
    import gpumem
    import gpumem.cupy

    with gpumem.Session.connect() as session, session.open_allocator(limit=64 * MIB) as allocator:
        cupy.cuda.set_allocator(gpumem.cupy.allocator(allocator))
        held = []
        for number in range(200):  # more than the adapter keeps
            with cupy.cuda.Stream(non_blocking=True):
                cupy.arange(MIB // 64)
                held.append(cupy.arange(MIB // 64 - number))  # of memory that is free
        assert {type(one.data.mem).__name__ for one in held[1:50]} == {"CFunctionAllocatorMemory"}
        assert all(one.sum() == sum(range(MIB // 64 - number)) for number, one in list(enumerate(held))[::40])
        held.clear()
        assert allocator.statistics().in_use == 0
        cupy.cuda.set_allocator(None)
    channel.send("done")


def test_arrays_keep_their_streams(capfd):
    with child(keep_streams) as other:
        assert other.recv() == "done"
    assert capfd.readouterr().err == ""  # a free on a stream that has ended would be told there


def outlive_the_allocator(channel):
    import cupy
    import gpumem
    import gpumem.cupy
    import numpy as np

    with gpumem.Session.connect() as session:
        allocator = session.open_allocator(limit=64 * MIB)
        with cupy.cuda.using_allocator(gpumem.cupy.allocator(allocator)):
            cupy.arange(MIB)
            there = cupy.arange(MIB)
            assert type(there.data.mem).__name__ == "CFunctionAllocatorMemory"
        assert allocator.statistics().in_use == there.nbytes
        del allocator  # the array needs it
        assert np.array_equal(there.get(), np.arange(MIB))
    channel.send("done")


def test_arrays_keep_their_allocator():
    with child(outlive_the_allocator) as other:
        assert other.recv() == "done"
