"""The package gpumem, with libgpumem and a broker over simulated GPUs."""
import gc
import os
import pathlib
import pickle
import re
import subprocess
import sys
import threading

import gpumem
import pytest
from cuda.bindings import driver as cu
from gpumem import MIB

from bindings import ok, read
from brokered import POOL, broker, context, eventually, kept  # noqa: F401, some are fixtures


@pytest.fixture
def session(context):
    ok(cu.cuCtxSetCurrent(context))
    with gpumem.Session.connect(label="test") as session:
        yield session


@pytest.fixture
def allocator(session):
    with session.open_allocator(limit=64 * MIB, label="blocks") as allocator:
        yield allocator


def filled(address: int, size: int, byte: int) -> bool:
    """Whether the device's memory there, once it is set, reads as it was set."""
    ok(cu.cuMemsetD8(address, byte, size))
    return read(address, size) == bytes([byte]) * size


def python(source: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs `source` in an interpreter of its own."""
    return subprocess.run([sys.executable, "-c", source], env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=120)


def test_a_session_tells_who_is_charged(session, broker):
    session.ping()
    assert session.tenant
    [seen] = broker.sessions()
    assert (seen["id"], seen["pid"], seen["label"]) == (session.id, os.getpid(), "test")
    usage = session.usage()
    assert {figures.device for figures in usage} == {device["uuid"] for device in broker.devices()}
    assert all(figures.pool == POOL and figures.charged == figures.pressure == 0 for figures in usage)


def test_a_slice_grows_shrinks_and_gives_back(session, broker):
    with session.open_slice(limit=32 * MIB, label="weights") as slice:
        assert (slice.committed, slice.limit, slice.ordinal) == (0, 32 * MIB, 0)
        assert slice.grow(5 * MIB) == slice.committed == 6 * MIB
        assert filled(slice.base, 6 * MIB, 7)
        assert slice.set_in_use(6 * MIB) and not slice.set_in_use(8 * MIB)
        assert broker.lent() >= 6 * MIB
        with pytest.raises(gpumem.OutOfMemory) as refused:
            slice.grow(64 * MIB)
        assert refused.value.code is gpumem.Code.RESOURCE_EXHAUSTED and "limit" in str(refused.value)
        assert slice.shrink(2 * MIB) <= 6 * MIB
        assert slice.release(64 * MIB) > 0
        assert slice.committed == 0
    with pytest.raises(gpumem.FailedPrecondition):
        slice.grow(MIB)
    slice.close()


SHARING = """
import sys, gpumem
from cuda.bindings import driver as cu
with gpumem.Session.connect() as session, session.import_handle(bytes.fromhex(sys.argv[1])) as memory:
    cu.cuInit(0)
    cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
    assert memory.size == 4096, memory.size
    cu.cuMemsetD8(memory.address, 9, memory.size)
    cu.cuCtxSynchronize()
"""


def test_another_process_writes_to_memory_that_a_handle_names(session):
    with session.open_slice() as slice:
        slice.grow(4 * MIB)
        assert filled(slice.base, 4 * MIB, 1)
        handle = slice.export_handle(3 * MIB, 4096)
        assert len(handle) == 64
        done = subprocess.run([sys.executable, "-c", SHARING, handle.hex()], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert read(slice.base, 4 * MIB) == b"\1" * (3 * MIB) + b"\t" * 4096 + b"\1" * (MIB - 4096)
        with pytest.raises(gpumem.NotFound):
            session.import_handle(handle)
        for wrong in (b"", bytes(63), bytes(65), bytes(64)):
            with pytest.raises(gpumem.InvalidArgument):
                session.import_handle(wrong)
        with pytest.raises(gpumem.InvalidArgument):
            slice.export_handle(4 * MIB)
        with session.import_handle(slice.export_handle(uses=2)) as own:
            assert (own.size, own.device, own.ordinal) == (4 * MIB, slice.device, slice.ordinal)
            own.close()
            own.close()


def test_another_process_writes_to_a_block_that_a_handle_names(session, allocator):
    with allocator.allocate(3 * MIB) as block:
        assert filled(block.address, block.size, 1)
        done = subprocess.run([sys.executable, "-c", SHARING, block.export_handle(MIB, 4096).hex()],
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert read(block.address, block.size) == b"\1" * MIB + b"\t" * 4096 + b"\1" * (2 * MIB - 4096)
        with pytest.raises(gpumem.InvalidArgument):
            block.export_handle(3 * MIB)
    with pytest.raises(gpumem.FailedPrecondition):
        block.export_handle()


READING = """
import sys, gpumem
from cuda.bindings import driver as cu
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
with gpumem.Session.connect() as session, session.map_region("weights") as weights:
    assert (weights.size, weights.layout, weights.digest) == (4 * gpumem.MIB, 100, bytes(range(32))), weights.size
    assert weights.version == int(sys.argv[1]), weights.version
    copy = bytearray(weights.size)
    assert cu.cuMemcpyDtoH(copy, weights.address, weights.size)[0] == cu.CUresult.CUDA_SUCCESS
    assert copy == bytes([7]) * weights.size
    assert cu.cuMemsetD8(weights.address, 8, 1)[0] != cu.CUresult.CUDA_SUCCESS
"""


def test_a_region_is_read_by_another_process_and_moves_on(session):
    with session.open_slice() as slice:
        slice.grow(4 * MIB)
        assert filled(slice.base, 4 * MIB, 7)
        first = slice.publish("weights", layout=100, digest=bytes(range(32)))
        done = subprocess.run([sys.executable, "-c", READING, str(first)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        second = slice.publish("weights", MIB, 4096, life=3600.0)
        assert second > first
        with session.map_region("weights") as newest, session.map_region("weights", version=first) as older:
            assert (newest.version, newest.size, older.version, older.size) == (second, 4096, first, 4 * MIB)
            session.remove_region("weights", version=second)
            assert read(newest.address, newest.size) == bytes([7]) * 4096
        with session.map_region("weights", writable=True) as shared:
            assert shared.version == first and filled(shared.address, shared.size, 8)
        assert read(slice.base, 4 * MIB) == bytes([8]) * 4 * MIB
        session.remove_region("weights")
        with pytest.raises(gpumem.NotFound, match="no region 'weights'"):
            session.map_region("weights")
        with pytest.raises(gpumem.NotFound):
            session.remove_region("weights")


def test_a_region_that_makes_no_sense_is_refused_with_a_reason(session):
    with session.open_slice() as slice:
        slice.grow(2 * MIB)
        for wrong, reason in ((dict(layout=4 * MIB), "layout"), (dict(digest=b"1"), "32"), (dict(offset=2 * MIB), "committed"),
                              (dict(sharing=gpumem.Sharing.NAMED), "named"), (dict(readers=["x"]), "named"),
                              (dict(sharing=gpumem.Sharing.NAMED, readers=["x"] * 9), "8 tenants")):
            with pytest.raises(gpumem.InvalidArgument, match=reason):
                slice.publish("weights", **wrong)
        for name in ("", "x" * 129, "a\nb"):
            with pytest.raises(gpumem.InvalidArgument, match="128"):
                slice.publish(name)
            with pytest.raises(gpumem.InvalidArgument, match="128"):
                session.map_region(name)


def test_a_kept_region_outlives_its_publisher_and_is_adopted(session):
    done = python("""
import gpumem
session = gpumem.Session.connect()
slice = session.open_slice()
slice.grow(2 * gpumem.MIB)
slice.publish("kept", keep=True)
print(session.id)
""")
    assert done.returncode == 0, done.stderr
    with session.map_region("kept", adopt=True) as weights:
        assert weights.size == 2 * MIB
        with pytest.raises(gpumem.FailedPrecondition, match="not a kept one"):
            session.map_region("kept", adopt=True)
    with pytest.raises(gpumem.NotFound):
        session.map_region("kept")


def test_a_kept_region_lingers_for_its_time(session):
    with session.open_slice() as slice:
        slice.grow(2 * MIB)
        with pytest.raises(gpumem.InvalidArgument, match="kept"):
            slice.publish("brief", linger=1.0)
        slice.publish("brief", keep=True, linger=0.001)
        with session.map_region("brief"):
            pass
    with pytest.raises(gpumem.NotFound):
        while True:  # until its time is over
            session.map_region("brief").close()


def test_a_region_is_waited_for(session):
    with pytest.raises(gpumem.NotFound, match="waited") as waited:
        session.map_region("later", wait=0.01)
    assert waited.value.code is gpumem.Code.DEADLINE_EXCEEDED
    with pytest.raises(gpumem.InvalidArgument, match="newest"):
        session.map_region("later", version=7, wait=1.0)
    with pytest.raises(gpumem.InvalidArgument, match="wait"):
        session.map_region("later", wait=-1.0)
    found = []
    reader = threading.Thread(target=lambda: found.append(session.map_region("later", wait=60.0).size))
    reader.start()
    with session.open_slice() as slice:
        slice.grow(2 * MIB)
        slice.publish("later")
        reader.join()
    assert found == [2 * MIB]


def test_a_newer_version_is_waited_for(session):
    with session.open_slice() as slice:
        slice.grow(2 * MIB)
        first = slice.publish("next")
        with pytest.raises(gpumem.NotFound, match=f"the newest is version {first}$"):
            session.map_region("next", newer_than=first, wait=0.01)
        with pytest.raises(gpumem.InvalidArgument, match="one version"):
            session.map_region("next", newer_than=first, version=first)
        found = []
        reader = threading.Thread(target=lambda: found.append(session.map_region("next", newer_than=first, wait=60.0).version))
        reader.start()
        second = slice.publish("next")
        reader.join()
        assert found == [second]


def test_the_page_of_regions_runs(session):
    page = pathlib.Path(__file__).resolve().parents[3] / "docs/regions.md"
    snippets = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    assert len(snippets) == 11
    done = python("import gpumem\n" + "".join(snippets))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0x")


def test_blocks_hold_what_is_put_into_them(allocator):
    blocks = [allocator.allocate(size) for size in (1, 300, MIB, 3 * MIB + 5)]
    assert all(block.address % 256 == 0 for block in blocks)
    for number, block in enumerate(blocks, 1):
        assert filled(block.address, block.size, number)
    assert len({block.address for block in blocks}) == 4
    figures = allocator.statistics()
    assert figures.in_use == sum(block.size for block in blocks) <= figures.placed <= figures.committed
    assert [(info.address, info.bytes) for info in allocator.snapshot()] == \
        sorted((block.address, block.size) for block in blocks)
    for block in blocks:
        block.free()
        block.free()
    assert allocator.statistics().in_use == 0 and allocator.snapshot() == []
    assert sum(size_class.allocations for size_class in allocator.size_classes()) == 4
    with pytest.raises(gpumem.FailedPrecondition):
        blocks[0].address


def test_a_forgotten_block_is_free(allocator):
    block = allocator.allocate(MIB)
    assert allocator.statistics().in_use == MIB
    del block
    gc.collect()
    assert allocator.statistics().in_use == 0


def test_a_forgotten_block_of_a_threads_own_stream_is_behind_its_work(allocator, context):
    flag = ok(cu.cuMemAlloc(4))
    ok(cu.cuMemsetD32(flag, 0, 1))
    forgotten, held, over = [], threading.Event(), threading.Event()

    def work():
        ok(cu.cuCtxSetCurrent(context))
        forgotten.append(allocator.allocate(allocator.limit, 2))
        ok(cu.cuStreamWaitValue32(cu.CUstream(2), flag, 1, cu.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
        held.set()
        over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    held.wait()
    forgotten.clear()  # finalised here, where stream 2 is another one
    other, opener = (ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING)) for _ in range(2))
    with allocator.allocate(allocator.limit, int(other)):
        behind = cu.cuStreamQuery(other)[0]
        ok(cu.cuStreamWriteValue32(opener, flag, 1, 0))
        ok(cu.cuStreamSynchronize(other))
    over.set()
    thread.join()
    assert behind == cu.CUresult.CUDA_ERROR_NOT_READY
    for one in other, opener:
        ok(cu.cuStreamDestroy(one))
    ok(cu.cuMemFree(flag))


def test_a_block_is_extended_within_its_room(allocator):
    with allocator.allocate(2 * MIB, tag="cache", room=30 * MIB) as block:
        assert filled(block.address, 2 * MIB, 3)
        before = block.address
        block.extend(9 * MIB)
        assert (block.address, block.size) == (before, 9 * MIB)
        [info] = allocator.snapshot()
        assert (info.tag, info.bytes) == ("cache", 9 * MIB)
        block.extend(MIB)
        assert block.size == MIB


def test_a_block_is_an_array_of_bytes_for_others(allocator):
    with allocator.allocate(4096) as block:
        described = block.__cuda_array_interface__
        assert described == {"shape": (4096,), "typestr": "|u1", "data": (block.address, False), "version": 3, "stream": 1}


def test_streams_of_any_kind_are_taken(allocator):
    stream = ok(cu.cuStreamCreate(0))

    class Typed:
        def __cuda_stream__(self):
            return 0, int(stream)

    class Cupys:
        ptr = int(stream)

    for one in (None, 0, 1, 2, int(stream), stream, Typed(), Cupys()):
        allocator.allocate(MIB, one).free(one)
    allocator.synchronize(stream)
    allocator.release_stream(stream)
    ok(cu.cuStreamDestroy(stream))
    with pytest.raises(TypeError, match="no stream"):
        allocator.allocate(MIB, "a stream")


def test_what_is_not_needed_goes_back_when_asked(allocator, broker):
    allocator.allocate(16 * MIB).free()
    assert broker.lent() >= 16 * MIB
    assert allocator.trim() >= 16 * MIB
    eventually(lambda: broker.lent() == 0, "nothing lent")


def test_bad_input_is_an_error_that_says_so(allocator, session):
    for call in (lambda: allocator.allocate(0), lambda: allocator.allocate(-1), lambda: allocator.allocate(2**64),
                 lambda: allocator.deallocate(4096),
                 lambda: session.open_allocator(wait=-1), lambda: session.open_allocator(wait=float("nan")),
                 lambda: gpumem.Session.connect(label="x" * 129), lambda: gpumem.Session.connect(label="a\0b")):
        with pytest.raises(gpumem.InvalidArgument) as refused:
            call()
        assert isinstance(refused.value, ValueError) and refused.value.message
    with pytest.raises(TypeError):
        allocator.allocate(1.5)
    with pytest.raises(gpumem.OutOfMemory, match="limit"):
        allocator.allocate(2**63)
    with pytest.raises(gpumem.NotFound):
        session.open_allocator(device="GPU-00000000-0000-0000-0000-000000000000")
    block = allocator.allocate(MIB)
    for address, size in ((block.address + 256, None), (block.address, 2 * MIB)):
        with pytest.raises(gpumem.InvalidArgument):
            allocator.deallocate(address, size)
    allocator.deallocate(block.address)
    with pytest.raises(gpumem.InvalidArgument):
        block.free()
    allocator.destroy()


def test_out_of_memory_is_explained(allocator):
    with pytest.raises(gpumem.OutOfMemory) as refused, allocator.allocate(48 * MIB):
        allocator.allocate(48 * MIB)
    assert isinstance(refused.value, MemoryError) and "limit" in str(refused.value)
    again = pickle.loads(pickle.dumps(refused.value))
    assert (type(again), again.code, str(again)) == (gpumem.OutOfMemory, refused.value.code, str(refused.value))


def test_an_allocator_with_blocks_in_use_is_not_closed(session):
    allocator = session.open_allocator()
    block = allocator.allocate(MIB)
    with pytest.raises(gpumem.FailedPrecondition, match="in use"):
        allocator.close()
    assert filled(block.address, MIB, 5)
    allocator.destroy()
    allocator.close()
    for call in (lambda: allocator.allocate(MIB), allocator.statistics, allocator.trim):
        with pytest.raises(gpumem.FailedPrecondition):
            call()
    del block


def test_an_exception_is_not_hidden_by_blocks_in_use(session):
    with pytest.raises(KeyError), session.open_allocator() as allocator:
        block = allocator.allocate(MIB)
        raise KeyError("of the program")
    block.free()
    allocator.close()


def test_threads_share_an_allocator(allocator):
    failed = []

    def churn(size):
        try:
            for _ in range(200):
                with allocator.allocate(size) as one, allocator.allocate(2 * size) as other:
                    assert one.address != other.address
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=churn, args=(256 << shift,)) for shift in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and allocator.statistics().in_use == 0


def test_a_forked_child_is_told_so_and_changes_nothing(allocator, session):
    block = allocator.allocate(MIB)
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        told = []
        for call in (lambda: allocator.allocate(MIB), block.free, allocator.close, allocator.destroy, session.ping,
                     session.close):
            try:
                call()
            except gpumem.FailedPrecondition:
                told.append("told")
        del block
        gc.collect()
        os.write(writing, " ".join(told).encode())
        os._exit(0)
    os.close(writing)
    assert os.waitpid(process, 0)[1] == 0
    assert os.read(reading, 100).decode().split() == ["told"] * 6
    os.close(reading)
    assert filled(block.address, MIB, 9)
    session.ping()
    block.free()


def test_a_forked_child_may_end_within_its_parents_statement(broker):
    ended = python("""
import os, sys, gpumem
with gpumem.Session.connect() as session, session.open_allocator() as allocator, allocator.allocate(64):
    process = os.fork()
    if process == 0:
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
    session.ping()
""")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_is_left_at_the_interpreters_end_does_no_harm(broker):
    ended = python("""
import gpumem
session = gpumem.Session.connect()
session.on_pressure(lambda pressure: 0)
allocator = session.open_allocator()
blocks = [allocator.allocate(1 << 20) for _ in range(10)]
slice = session.open_slice()
slice.grow(4 << 20)
shared = gpumem.default_allocator(0).allocate(1 << 20)
class Holder:
    def __del__(self):
        self.block.free if hasattr(self, 'block') else None
holder = Holder()
holder.block = allocator.allocate(64)
holder.itself = holder
gpumem.default_session().on_pressure(print)
""")
    assert (ended.returncode, ended.stderr) == (0, "")
    eventually(broker.at_rest, "a broker at rest")


def test_the_process_has_a_session_and_allocators_of_its_own(broker):
    ended = python("""
import gpumem
gpumem.configure_default(label='shared', limit=8 << 20)
allocator = gpumem.default_allocator(0)
assert allocator.handle == gpumem.default_allocator(0).handle != gpumem.default_allocator(1).handle
assert gpumem.default_allocator(1).ordinal == 1 and allocator.limit == 8 << 20
with allocator.allocate(1 << 20):
    pass
for refused in (allocator.close, gpumem.default_session().close, lambda: gpumem.configure_default()):
    try:
        refused()
    except gpumem.FailedPrecondition:
        continue
    raise AssertionError(refused)
try:
    gpumem.default_allocator(7)
except gpumem.NotFound:
    print('done')
""")
    assert (ended.stdout, ended.stderr) == ("done\n", "")


@pytest.fixture
def debtor(session):
    """A slice whose tenant comes into debt, and the bytes it was asked for, by calling owe()."""
    with session.open_slice() as slice:
        slice.grow(POOL, least=POOL // 2)
        yield slice, lambda: session.charge(slice.device, 32 * MIB)
        session.charge(slice.device, 0)
        session.on_pressure(None)


def test_a_handler_gives_back_what_is_asked_for(session, debtor):
    slice, owe = debtor
    asked, done = [], threading.Event()

    def give(pressure):
        asked.append(pressure)
        session.on_pressure(None)  # a handler may remove itself
        given = slice.release(pressure.bytes)
        done.set()
        return given

    session.on_pressure(give)
    before = slice.committed
    owe()
    assert done.wait(60)
    assert asked[0].device == slice.device and 0 < asked[0].bytes <= before - slice.committed and asked[0].deadline > 0
    assert any(usage.charged for usage in session.usage())


def test_a_handler_goes_with_its_session(broker):
    session = gpumem.Session.connect()
    allocator = session.open_allocator()
    block = allocator.allocate(MIB)

    def give(pressure, block=block):
        return block.size

    session.on_pressure(give)
    session.close()
    del give, block
    gc.collect()
    allocator.close()  # nothing refers to the block any more


def test_a_handler_that_raises_is_heard_of(session, debtor, capfd):
    slice, owe = debtor
    called = threading.Event()

    def fail(pressure):
        called.set()
        raise KeyError("of the handler")

    session.on_pressure(fail)
    owe()
    assert called.wait(60)
    session.on_pressure(None)  # it has returned then
    assert "KeyError: 'of the handler'" in capfd.readouterr().err
    slice.shrink(0)


def test_without_a_broker_or_a_library_it_says_what_to_do(tmp_path):
    without_broker = python("import gpumem; gpumem.Session.connect()", GPUMEM_RUNTIME_DIR=str(tmp_path))
    assert "gpumem.errors.Unavailable: " in without_broker.stderr and "gpumemd" in without_broker.stderr
    without_library = python("import gpumem; gpumem.version()", GPUMEM_LIBRARY=str(tmp_path / "libgpumem.so.0"))
    assert "gpumem.errors.LibraryNotFound: " in without_library.stderr and "GPUMEM_LIBRARY" in without_library.stderr
    of_another = python("import gpumem; gpumem.version()", GPUMEM_LIBRARY="libc.so.6")
    assert "install the same version" in of_another.stderr
    assert gpumem.version() == gpumem.__version__
