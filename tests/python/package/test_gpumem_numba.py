"""numba-cuda on memory of gpumem: its External Memory Manager. Each test is a process of its own, since a manager is
chosen once for all."""
import os

import numpy as np
import pytest

from bindings import MIB
from brokered import broker, eventually, kept  # noqa: F401, the first and the last are fixtures
from children import child

numbers = np.arange(MIB, dtype=np.int32)


def use_arrays(channel):
    import gpumem.numba
    from numba import cuda

    gpumem.numba.enable(limit=64 * MIB, label="arrays")
    there = cuda.to_device(numbers)
    manager = cuda.current_context().memory_manager
    assert isinstance(manager, gpumem.numba.GpumemMemoryManager)
    channel.send(manager.allocator.statistics().in_use)
    assert np.array_equal(there.copy_to_host(), numbers)
    stream = cuda.stream()
    for _ in range(50):
        other = cuda.to_device(numbers[: 256 * 1024], stream=stream)
        assert np.array_equal(other.copy_to_host(stream=stream), numbers[: 256 * 1024])
    assert cuda.device_array(0).size == 0
    channel.recv()
    with pytest.raises(NotImplementedError, match="NUMBA_CUDA_MEMORY_MANAGER"):
        there.get_ipc_handle()
    assert np.array_equal(there[100:200].copy_to_host(), numbers[100:200])
    del there, other
    manager.deallocations.clear()
    channel.send(manager.allocator.statistics().in_use)
    cuda.close()
    channel.send("closed")
    channel.recv()


def test_arrays_lie_in_borrowed_memory(broker):
    with child(use_arrays) as other:
        assert other.recv() == numbers.nbytes
        assert [session["label"] for session in broker.sessions()] == ["numba"]
        assert broker.lent() >= numbers.nbytes
        other.send("go on")
        assert other.recv() == 0
        assert other.recv() == "closed"
        eventually(lambda: broker.lent() == 0, "nothing lent")
        other.send("end")


def be_told(channel):
    from numba import cuda

    manager = cuda.current_context().memory_manager
    channel.send(type(manager).__name__)
    before = cuda.current_context().get_memory_info()
    there = cuda.to_device(numbers)
    after = cuda.current_context().get_memory_info()
    channel.send((before.total == after.total, before.free - after.free))
    assert np.array_equal(there.copy_to_host(), numbers)
    with cuda.gpus[1]:
        second = cuda.to_device(numbers)
        other = cuda.current_context().memory_manager
        assert (manager.allocator.ordinal, other.allocator.ordinal) == (0, 1)
        assert manager.allocator.device != other.allocator.device
        assert np.array_equal(second.copy_to_host(), numbers)


def test_the_environment_alone_puts_it_under_a_program(monkeypatch):
    monkeypatch.setenv("NUMBA_CUDA_MEMORY_MANAGER", "gpumem.numba")
    with child(be_told) as other:
        assert other.recv() == "GpumemMemoryManager"
        assert other.recv() == (True, numbers.nbytes)


def be_told_the_most(channel):
    import gpumem.numba
    from numba import cuda

    gpumem.numba.enable()
    there = cuda.to_device(numbers)
    manager = cuda.current_context().memory_manager
    channel.send((manager.deallocations.memory_capacity, manager.get_memory_info().total, there.nbytes))


def test_a_tenants_limit_is_the_most_there_may_be(broker):
    tenant = f"uid:{os.geteuid()}"
    broker.ask("quota", "set", tenant, "--limit", "64MiB")
    try:
        with child(be_told_the_most) as other:
            assert other.recv() == (64 * MIB, 64 * MIB, numbers.nbytes)
    finally:
        broker.ask("quota", "set", tenant, "--limit", "100%")


def ask_for_too_much(channel):
    import gpumem.numba
    from numba import cuda

    gpumem.numba.enable(limit=16 * MIB)
    kept = cuda.device_array(8 * MIB, dtype=np.uint8)
    for _ in range(8):  # what is gone waits to be freed, and is freed when it is missed
        cuda.device_array(6 * MIB, dtype=np.uint8)
    try:
        cuda.device_array(12 * MIB, dtype=np.uint8)
    except gpumem.OutOfMemory as error:
        channel.send(str(error))
    with cuda.defer_cleanup():
        again = cuda.to_device(numbers[:MIB])
        del again
        assert cuda.current_context().memory_manager.deallocations
    assert kept.size == 8 * MIB


def test_out_of_memory_is_explained():
    with child(ask_for_too_much) as other:
        assert "limit" in other.recv()


def begin_too_late(channel):
    import gpumem.numba
    from numba import cuda

    cuda.current_context()
    with pytest.raises(gpumem.FailedPrecondition, match="beginning"):
        gpumem.numba.enable()
    with pytest.raises(TypeError, match="device"):
        gpumem.numba.enable(device="GPU-0")
    assert "GPUMEM_RUNTIME_DIR" in os.environ
    channel.send("told")


def test_enabling_it_too_late_is_an_error():
    with child(begin_too_late) as other:
        assert other.recv() == "told"


def close_with_arrays(channel):
    import gpumem.numba
    from numba import cuda

    gpumem.numba.enable()
    arrays = [cuda.to_device(numbers) for _ in range(3)]
    channel.send("made")
    channel.recv()
    cuda.close()
    channel.send("closed")
    channel.recv()
    assert len(arrays) == 3


def test_closing_frees_what_is_there(broker):
    with child(close_with_arrays) as other:
        assert other.recv() == "made"
        assert broker.lent() >= 3 * numbers.nbytes
        other.send("go")
        assert other.recv() == "closed"
        eventually(lambda: broker.lent() == 0, "nothing lent")
        other.send("go")


def use_a_session_and_fork(channel):
    import gpumem.numba
    from numba import cuda

    session = gpumem.Session.connect(label="parent")
    gpumem.numba.enable(session, limit=16 * MIB)
    forked = os.fork()
    if forked == 0:
        there = cuda.to_device(numbers)
        manager = cuda.current_context().memory_manager
        good = np.array_equal(there.copy_to_host(), numbers) and manager.allocator.limit == 16 * MIB
        os._exit(0 if good and manager.session is not session else 1)
    channel.send(os.waitpid(forked, 0)[1])
    there = cuda.to_device(numbers)
    assert cuda.current_context().memory_manager.session is session
    del there
    cuda.close()


def test_a_forked_child_connects_itself():
    with child(use_a_session_and_fork) as other:
        assert other.recv() == 0


def use_region(channel):
    import gpumem
    from numba import cuda

    with gpumem.Session.connect() as session, gpumem.publish_arrays(session, "numbers", {"numbers": numbers}):
        region = session.map_region("numbers")
        there = cuda.as_cuda_array(region.arrays()["numbers"])
        region.close()
        channel.send((there.shape, str(there.dtype), bool(np.array_equal(there.copy_to_host(), numbers))))
        channel.recv()
        del there, region
    cuda.close()


def test_an_array_of_a_region_is_a_device_array(broker):
    with child(use_region) as other:
        assert other.recv() == ((MIB,), "int32", True)
        other.send("go on")
