"""The adapters for CuPy under CuPy itself, one module of which stands on a stand-in for the CUDA runtime
(suites/cupy.sh). Arrays come from the host and go there: kernels are not simulated. Each test is a process of its own."""
import pathlib
import sys

import pytest

from bindings import MIB
from brokered import broker, kept  # noqa: F401, the first is a fixture, the second, too
from children import child

CUPY = pathlib.Path(__file__).parents[3] / ".cache/python-suites/cupy"


@pytest.fixture(autouse=True)
def real(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(CUPY), *sys.path])  # which children have from their parent


def use_arrays(channel):
    import cupy
    import gpumem
    import gpumem.cupy
    import numpy as np

    with gpumem.Session.connect() as session, session.open_allocator(limit=64 * MIB) as allocator:
        cupy.cuda.set_allocator(gpumem.cupy.allocator(allocator))
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            cupy.empty(8 * MIB, dtype=np.uint8)
            there = cupy.asarray(np.arange(MIB))
            assert isinstance(there.data.mem, cupy.cuda.memory.CFunctionAllocatorMemory)
        other = cupy.asarray(np.arange(1000, dtype=np.int32))
        assert {(info.bytes, info.stream) for info in allocator.snapshot()} == {(8 * MIB, stream.ptr), (4000, 0)}
        assert np.array_equal(there.get(stream=stream), np.arange(MIB)) and np.array_equal(other.get(), np.arange(1000))
        with pytest.raises(MemoryError, match="limit"):
            cupy.empty(7 * MIB), cupy.empty(7 * MIB)
        pool = cupy.get_default_memory_pool()
        assert pool.used_bytes() == pool.total_bytes() == 0  # it is out of use, and so is its limit
        del there, other
        assert allocator.statistics().in_use == 0
        cupy.cuda.set_allocator(None)
    channel.send("done")


def test_arrays_are_in_borrowed_memory_on_their_stream():
    with child(use_arrays) as other:
        assert other.recv() == "done"
