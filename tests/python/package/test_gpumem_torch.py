"""The adapter for PyTorch, under a fake of its interface. Each test is a process of its own."""
import contextlib
import ctypes
import os
import sys

import pytest
from cuda.bindings import driver as cu

from bindings import MIB, ok
from brokered import broker, eventually, kept  # noqa: F401, the first and the last are fixtures
from children import child


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    monkeypatch.setattr(sys, "path", ["fakes", *sys.path])  # which children have from their parent


def use_tensors(channel):
    import gpumem
    import gpumem.torch
    import numpy as np

    gpumem.torch.enable(label="tensors", limit=64 * MIB)
    gpumem.torch.enable()
    import torch

    tensor = torch.arange(MIB, device="cuda")
    allocator = gpumem.default_allocator(0)
    assert [(info.address, info.bytes) for info in allocator.snapshot()] == [(tensor.data_ptr(), 8 * MIB)]
    channel.send("made")
    channel.recv()
    assert np.array_equal(tensor.cpu(), np.arange(MIB))
    del tensor
    assert allocator.statistics().in_use == 0
    assert allocator.trim() > 0


def test_tensors_lie_in_borrowed_memory(broker):
    with child(use_tensors) as other:
        assert other.recv() == "made"
        assert [session["label"] for session in broker.sessions()] == ["tensors"]
        assert broker.lent() >= 8 * MIB
        other.send("go on")


def enable_too_late(channel):
    import gpumem
    import gpumem.torch
    import torch

    torch.cuda.init()
    with pytest.raises(gpumem.FailedPrecondition, match="before the first CUDA tensor"):
        gpumem.torch.enable()
    torch.cuda._initialized = False
    torch.cuda.memory._in_use = True
    with pytest.raises(gpumem.FailedPrecondition, match="already initialized"):
        gpumem.torch.enable()
    channel.send("told")


def test_enabling_it_too_late_is_an_error():
    with child(enable_too_late) as other:
        assert other.recv() == "told"


def use_tensors_in_a_forked_child(channel):
    import gpumem
    import gpumem.torch

    gpumem.torch.enable(runtime_folder=os.environ.pop("GPUMEM_RUNTIME_DIR"), label="parent", limit=16 * MIB)
    import torch

    forked = os.fork()
    if forked == 0:
        tensor = torch.arange(MIB, device="cuda")
        allocator = gpumem.default_allocator(0)
        os._exit(0 if allocator.statistics().in_use == 8 * MIB and allocator.limit == 16 * MIB and tensor.data_ptr() else 1)
    channel.send(os.waitpid(forked, 0)[1])


def test_a_forked_child_is_configured_as_its_parent():
    with child(use_tensors_in_a_forked_child) as other:
        assert other.recv() == 0


def enable_without_a_broker(channel):
    import gpumem
    import gpumem.torch

    with pytest.raises(gpumem.Unavailable):
        gpumem.torch.enable(runtime_folder="/nonexistent")
    channel.send("told")


def test_without_a_broker_it_is_enabling_that_fails():
    with child(enable_without_a_broker) as other:
        assert other.recv() == "told"


@contextlib.contextmanager
def closed_gate(stream):
    """Holds the stream up. Not by cuda-bindings, which take the GIL for a host function."""
    libc, driver = ctypes.CDLL(None), ctypes.CDLL("libcuda.so.1")
    semaphore = ctypes.create_string_buffer(64)
    libc.sem_init(semaphore, 0, 0)
    assert driver.cuLaunchHostFunc(ctypes.c_void_p(int(stream)), libc.sem_wait, semaphore) == 0
    try:
        yield
    finally:
        libc.sem_post(semaphore)
        ok(cu.cuStreamSynchronize(stream))


def record_a_stream(channel):
    import gpumem
    import gpumem.torch

    gpumem.torch.enable(limit=64 * MIB, idle=3600)
    import torch

    tensor = torch.arange(MIB, device="cuda")
    address = tensor.data_ptr()
    side = ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
    with closed_gate(side):
        tensor.record_stream(int(side))
        del tensor
        other = torch.cuda.memory.raw_alloc(8 * MIB)
        assert other != address, "the side stream has not read it yet"
    torch.cuda.memory.raw_delete(other, 8 * MIB)
    allocator = gpumem.default_allocator(0)
    allocator.trim()
    assert allocator.statistics().committed == 0
    channel.send("done")


def test_a_tensor_that_a_side_stream_uses_is_not_reused_before_that_stream_is_done():
    with child(record_a_stream) as other:
        assert other.recv() == "done"


def read_figures(channel):
    import gpumem.torch

    gpumem.torch.enable(limit=64 * MIB, idle=3600)
    import torch

    torch.cuda.init()
    assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == 0
    first, second = (torch.arange(MIB, device="cuda") for _ in range(2))
    assert torch.cuda.memory_allocated() == 16 * MIB
    assert torch.cuda.memory_reserved() >= 16 * MIB
    del second
    assert torch.cuda.memory_allocated(0) == 8 * MIB
    assert torch.cuda.max_memory_allocated() == 16 * MIB
    torch.cuda.empty_cache()  # the peak counts a block that a thread has cached
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 8 * MIB
    assert torch.cuda.memory.memory_stats_as_nested_dict()["allocation"]["all"] == {
        "current": 1, "peak": 0, "allocated": 2, "freed": 1}
    del first
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0
    channel.send("done")


def test_figures_are_those_of_the_allocator_and_the_cache_can_be_emptied():
    with child(read_figures) as other:
        assert other.recv() == "done"


def enable_with_an_old_pytorch(channel):
    import gpumem
    import gpumem.torch
    import torch

    del torch.cuda.memory._Callbacks.set_record_stream_fn
    with pytest.raises(gpumem.FailedPrecondition, match="no set_record_stream_fn"):
        gpumem.torch.enable()
    channel.send("told")


def test_a_pytorch_that_cannot_record_streams_is_refused():
    with child(enable_with_an_old_pytorch) as other:
        assert other.recv() == "told"


def use_region(channel):
    import gpumem
    import gpumem.torch
    import numpy as np
    from gpumem.layout import Layout
    from gpumem.publish import publish_layout

    given = {"weight": np.arange(6, dtype="float32").reshape(2, 3), "bn.running_mean": np.ones(3, dtype="float32")}
    with gpumem.Session.connect() as session, gpumem.publish_arrays(session, "module", given):
        tensors = gpumem.torch.tensors(session.map_region("module"))
        assert all(np.array_equal(tensors[name], one) for name, one in given.items())
        tensors["bn.running_mean"] += 1  # a copy of this process's own
        arrays = session.map_region("module").arrays(private=())
        assert gpumem.torch.tensors(arrays)["bn.running_mean"].tolist() == [1, 1, 1]
        foreign = Layout.packed({"scale": ("float8_e8m0fnu", (4,))})
        with publish_layout(session, "scales", foreign, lambda base, memory: None):
            with pytest.raises(gpumem.InvalidArgument, match="PyTorch takes no array 'scale' of float8_e8m0fnu"):
                gpumem.torch.tensors(session.map_region("scales"))
    channel.send("done")


def test_a_region_is_tensors(broker):
    with child(use_region) as other:
        assert other.recv() == "done"
