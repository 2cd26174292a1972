"""Arrays that one process publishes and others use without a copy."""
import array as buffers
import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import gpumem
import numpy as np
import pytest
from cuda.bindings import driver as cu
from gpumem import MIB, _dlpack
from gpumem._dtypes import dtype_of_dlpack
from gpumem.layout import MOST_BYTES, Layout

from bindings import ok
from brokered import broker, context, eventually, kept, session  # noqa: F401, fixtures

GRID = np.arange(12, dtype="float32").reshape(3, 4)


def python(source: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", source, *arguments], capture_output=True, text=True, timeout=120)


def bytes_of(capsule: object) -> bytes:
    """What a consumer of DLPack reads on the host."""
    import ctypes

    found = _dlpack.strided_of(capsule)
    return ctypes.string_at(found.address, found.dtype.itemsize * int(np.prod(found.shape)))


READER = """
import sys, numpy, gpumem
with gpumem.Session.connect() as session, session.map_region("weights") as region:
    arrays = region.arrays(expect_digest=bytes.fromhex(sys.argv[1]))
    assert arrays.metadata == {"step": "7"} and list(arrays) == ["grid", "ids"], arrays
    grid = numpy.asarray(arrays["grid"])
    assert grid.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]] and not grid.flags.writeable
    assert arrays["ids"].tobytes() == bytes([1, 2, 3]) and arrays["ids"].dtype == "uint8"
print("read")
"""


ONCE = """
import os, sys, numpy, gpumem
def make():
    print("made", flush=True)
    if sys.argv[1] == "fail":
        raise RuntimeError("no weights")
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), 9)
    return {"grid": numpy.arange(12, dtype="float32").reshape(3, 4)}
with gpumem.Session.connect() as session:
    with gpumem.map_or_publish_arrays(session, "once", make, wait=120.0) as region:
        assert numpy.asarray(region.arrays()["grid"]).sum() == 66
        print("read", flush=True)
        sys.stdin.read()
"""


def once(how: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", ONCE, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_many_processes_make_arrays_once(session):
    programs = [once("make") for _ in range(4)]
    said = [[program.stdout.readline() for _ in range(1)][0] for program in programs]
    said += [program.stdout.readline() for program, line in zip(programs, said) if line == "made\n"]
    assert sorted(said) == ["made\n"] + 4 * ["read\n"]
    usage = session.usage()[0]
    assert usage.charged < 2 * 2 * MIB, "it is charged once"
    for program in programs:  # whoever has made it, too: the region goes on with the others
        program.communicate("")
        assert program.returncode == 0
    with pytest.raises(gpumem.NotFound):
        session.map_region("once")


@pytest.mark.parametrize("how", ["fail", "killed"])
def test_another_process_makes_arrays_that_one_could_not(session, how):
    broken = once(how)
    assert broken.stdout.readline() == "made\n"
    with gpumem.map_or_publish_arrays(session, "once", lambda: {"grid": GRID}, wait=120.0) as region:
        assert region.arrays()["grid"].tobytes() == GRID.tobytes()
        broken.communicate("")
        assert broken.returncode != 0


def test_the_publisher_of_what_is_made_once_is_a_reader_like_others(session):
    made = []

    def make():
        made.append(1)
        return {"grid": GRID}

    region = gpumem.map_or_publish_arrays(session, "once", make)
    again = gpumem.map_or_publish_arrays(session, "once", make)
    assert made == [1] and again.version == region.version
    assert region.arrays()["grid"].tobytes() == GRID.tobytes()
    region.close()
    assert again.arrays()["grid"].tobytes() == GRID.tobytes()
    again.close()
    gc.collect()
    with pytest.raises(gpumem.NotFound):
        session.map_region("once")


def test_a_name_is_reserved_until_it_is_released(session):
    with session.map_or_reserve("once") as reservation:
        assert reservation.name == "once" and "once" in repr(reservation)
        with pytest.raises(gpumem.NotFound, match="reserved by session"):
            session.map_or_reserve("once")
        with pytest.raises(gpumem.NotFound, match="reserved by session"):
            session.map_or_reserve("once", wait=0.001)
    with session.map_or_reserve("once", life=60):
        pass
    reservation.release()


def test_a_reservation_that_nobody_refers_to_is_released(session):
    forgotten = session.map_or_reserve("once")
    del forgotten
    gc.collect()
    session.map_or_reserve("once").release()


# An interrupt may come right after an answer.
def test_what_an_interrupt_has_cut_off_is_given_back(session, broker, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    module = sys.modules["gpumem.session"]
    with monkeypatch.context() as patched:
        patched.setattr(module, "Reservation", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.map_or_reserve("once")
    session.map_or_reserve("once").release()
    with gpumem.publish_arrays(session, "once", {"grid": GRID}), monkeypatch.context() as patched:
        patched.setattr(module, "Region", interrupted)
        for ask in (session.map_region, session.map_or_reserve):
            with pytest.raises(KeyboardInterrupt):
                ask("once")
        assert [one["mapped"] for one in broker.ask("regions")["regions"] if one["name"] == "once"] == [0]


def test_replicas_are_mapped_where_they_are_nearest(session):
    devices = [usage.device for usage in session.usage()]
    with gpumem.publish_replicas(session, "replicas", {"grid": GRID}) as replicas:
        assert replicas.devices == devices and len(replicas) == 2
        assert [publication.device for publication in replicas] == devices
        for device in devices:
            with gpumem.map_nearest(session, "replicas", device=device) as region:
                assert region.device == device and region.version == replicas[device].version
                assert region.arrays()["grid"].tobytes() == GRID.tobytes()
        with gpumem.map_nearest(session, "replicas") as region:
            assert region.device == devices[0]
        gc.collect()
    with pytest.raises(gpumem.NotFound):
        gpumem.map_nearest(session, "replicas")


def test_without_a_replica_on_the_device_another_ones_is_mapped_for_it(session):
    first, second = (usage.device for usage in session.usage())
    with gpumem.publish_replicas(session, "replicas", {"grid": GRID}, devices=[second]):
        with pytest.raises(gpumem.NotFound, match=first):
            gpumem.map_nearest(session, "replicas", device=first)
        with gpumem.map_nearest(session, "replicas", device=first, peer=True) as region:
            assert region.device == second
            assert region.arrays()["grid"].tobytes() == GRID.tobytes()
            access = cu.CUmemLocation()
            access.type, access.id = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
            assert ok(cu.cuMemGetAccess(access, region.address)) == cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
        gc.collect()
        with pytest.raises(gpumem.NotFound, match=first):
            session.map_region("replicas", device=first)


def test_replicas_are_published_everywhere_or_nowhere(session):
    first = session.usage()[0].device
    for wrong, error in (([], gpumem.InvalidArgument), ([first, first], gpumem.InvalidArgument),
                         ([first, "GPU-00000000-0000-0000-0000-000000000000"], gpumem.NotFound)):
        with pytest.raises(error):
            gpumem.publish_replicas(session, "replicas", {"grid": GRID}, devices=wrong)
        with pytest.raises(gpumem.NotFound):
            session.map_region("replicas")


def test_what_is_sealed_is_mapped_for_reading_alone(session):
    with gpumem.publish_arrays(session, "sealed", {"grid": GRID}, seal=True):
        with pytest.raises(gpumem.FailedPrecondition, match="is sealed"):
            session.map_region("sealed", writable=True)
        with session.map_region("sealed") as region:
            arrays = region.arrays()
            assert arrays["grid"].tobytes() == GRID.tobytes()
            del arrays
    gc.collect()


def test_another_process_reads_what_was_published(session):
    published = gpumem.publish_arrays(session, "weights", {"grid": GRID, "ids": bytes([1, 2, 3])}, metadata={"step": "7"})
    with published as publication:
        done = python(READER, publication.digest.hex())
        assert (done.stdout, done.stderr) == ("read\n", "")
    with pytest.raises(gpumem.NotFound):
        session.map_region("weights")
    publication.close()


def test_arrays_of_every_kind_are_published(session):
    class Foreign:  # a tensor of another package
        def __dlpack__(self, **_):
            return array.__dlpack__()

    kinds = {name: np.arange(6).astype(name).reshape(2, 3) for name in
             ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
              "complex64", "complex128")}
    given = {**kinds, "transposed": GRID.T, "every second": GRID[:, ::2], "scalar": np.float64(7), "empty": np.zeros((0, 4)),
             "array": buffers.array("d", [1, 2]), "writable": bytearray(b"abc"), "read-only": GRID[1]}
    given["read-only"].flags.writeable = False
    with gpumem.publish_arrays(session, "first", given), session.map_region("first") as region:
        arrays = region.arrays()
        for name, one in given.items():
            expected = np.frombuffer(one, "uint8") if isinstance(one, bytearray) else np.asarray(one)
            shown = np.asarray(arrays[name])
            assert shown.dtype == expected.dtype and shown.shape == expected.shape and (shown == expected).all(), name
            assert arrays[name].tobytes() == expected.tobytes()
        array = arrays["float32"]
        with gpumem.publish_arrays(session, "second", {"on the device": array, "dlpack": Foreign()}):
            with session.map_region("second") as copy:
                assert {one.tobytes() for one in copy.arrays().values()} == {array.tobytes()}
        del arrays, array, shown


@pytest.mark.parametrize("wrong, why", [
    (np.array(["text"]), "'bad'.*cannot be published"), (np.arange(3).astype(">i4"), "big-endian"), (7, "'bad'"),
    (memoryview(b"123456")[::2], "'bad'.*order"), (None, "'bad'")])
def test_what_is_no_array_is_refused_by_its_name(session, broker, wrong, why):
    with pytest.raises(gpumem.InvalidArgument, match=why):
        gpumem.publish_arrays(session, "weights", {"good": GRID, "bad": wrong})
    with pytest.raises(gpumem.InvalidArgument, match="nobody sees"):
        gpumem.publish_arrays(session, "weights", {"a\0b": GRID})
    assert broker.lent() == 0


def test_an_array_keeps_the_region_mapped(session, broker):
    publication = gpumem.publish_arrays(session, "weights", {"grid": GRID})
    region = session.map_region("weights")
    arrays = region.arrays()
    shown = np.from_dlpack(arrays["grid"])
    view = arrays["grid"].buffer()
    publication.close()
    region.close()
    region.close()
    with pytest.raises(gpumem.FailedPrecondition, match="closed"):
        region.arrays()
    del arrays, region
    gc.collect()
    assert (shown == GRID).all() and bytes(view) == GRID.tobytes() and broker.lent() >= 2 * MIB
    del shown
    gc.collect()
    assert bytes(view) == GRID.tobytes() and broker.lent() >= 2 * MIB
    del view
    gc.collect()
    eventually(lambda: broker.lent() == 0, "nothing lent")


def test_capsules_say_what_they_hold_and_are_given_up(session, broker):
    with gpumem.publish_arrays(session, "weights", {"grid": GRID}):
        with session.map_region("weights") as region:
            array = region.arrays()["grid"]
        assert array.__dlpack_device__() == (_dlpack.CPU, 0) and array.is_on_host
        old, new = array.__dlpack__(), array.__dlpack__(max_version=(1, 1), stream=None, dl_device=(1, 0), copy=False)
        assert '"dltensor"' in repr(old) and '"dltensor_versioned"' in repr(new)
        assert bytes_of(old) == bytes_of(new) == GRID.tobytes()
        for wrong in ({"copy": True}, {"dl_device": (_dlpack.CUDA, 0)}):
            with pytest.raises(BufferError):
                array.__dlpack__(**wrong)
        assert len(_dlpack._given) == 2
        del old, new, array
        gc.collect()
        assert not _dlpack._given
    eventually(lambda: broker.lent() == 0, "nothing lent")


def test_a_consumer_that_refuses_an_array_is_heard():
    class Bfloat16:
        memory = (ctypes.c_uint16 * 4)()

        def __dlpack__(self, **_):
            array = _dlpack.Strided(ctypes.addressof(self.memory), dtype_of_dlpack(4, 16, 1), (4,), (2,), (_dlpack.CPU, 0), self)
            return _dlpack.capsule_of(array, versioned=False, read_only=False)

        def __dlpack_device__(self):
            return (_dlpack.CPU, 0)

    with pytest.raises((RuntimeError, BufferError), match="(?i)unsupported|dtype"):
        np.from_dlpack(Bfloat16())
    assert not _dlpack._given


def test_a_read_only_region_is_read_only_for_everybody(session):
    with gpumem.publish_arrays(session, "weights", {"grid": GRID}):
        with session.map_region("weights") as region:
            array = region.arrays()["grid"]
        for shown in (np.asarray(array), np.from_dlpack(array), np.frombuffer(array.buffer(), "float32")):
            assert not shown.flags.writeable
        assert array.read_only and array.__cuda_array_interface__ == {
            "shape": (3, 4), "typestr": "<f4", "data": (array.address, True), "version": 3, "strides": None}
        del array, shown


WRITER = """
import ctypes, sys, gpumem
session = gpumem.Session.connect()
array = session.map_region("weights").arrays()["grid"]
print(array.tobytes().hex()[:8], flush=True)
ctypes.memset(array.address, 7, 4)
"""


def test_a_reader_that_writes_faults_and_harms_nobody(session):
    with gpumem.publish_arrays(session, "weights", {"grid": GRID + 1}), session.map_region("weights") as region:
        done = python(WRITER)
        assert done.returncode == -11 and done.stdout == "0000803f\n"
        assert (np.asarray(region.arrays()["grid"]) == GRID + 1).all()


def test_a_region_may_have_no_arrays(session):
    with gpumem.publish_arrays(session, "nothing", {}, metadata={"why": "texts alone"}):
        with session.map_region("nothing") as region:
            arrays = region.arrays()
            assert len(arrays) == arrays.nbytes == 0 and arrays.metadata == {"why": "texts alone"}


def test_each_array_has_metadata_of_its_own(session):
    texts = {"grid": {"scale": "0.5", "unit": "m"}}
    with gpumem.publish_arrays(session, "weights", {"grid": GRID, "ids": bytes([1, 2, 3])}, metadata={"step": "7"},
                               array_metadata=texts, private=["ids"]):
        with session.map_region("weights") as region:
            arrays = region.arrays()
            assert arrays["grid"].metadata == texts["grid"] and arrays["ids"].metadata == {}, "of a copy, too"
            assert arrays.metadata == {"step": "7"} and arrays.layout.arrays[0].metadata == texts["grid"]
            del arrays


@pytest.mark.parametrize("wrong, why", [({"grit": {"a": "1"}}, "'grit', and no array"), ({"grid": {"a": 1}}, "'grid'.*'a' is no text"),
                                        ({"grid": {"a": "x" * MOST_BYTES}}, "at most")])
def test_metadata_that_is_none_takes_no_memory(session, broker, wrong, why):
    with pytest.raises(gpumem.InvalidArgument, match=why):
        gpumem.publish_arrays(session, "weights", {"grid": GRID}, array_metadata=wrong)
    assert broker.lent() == 0


def test_processes_that_work_together_write(session):
    with gpumem.publish_arrays(session, "counters", {"grid": GRID}):
        with session.map_region("counters", writable=True) as ours, session.map_region("counters") as theirs:
            np.asarray(ours.arrays()["grid"])[1, 1] = 99
            assert np.asarray(theirs.arrays()["grid"])[1, 1] == 99


def test_private_arrays_are_copies_that_are_charged_to_the_reader(session, broker):
    given = {"bn/moving_mean": GRID, "dense/kernel": GRID * 2}
    with gpumem.publish_arrays(session, "model", given), session.map_region("model") as region:
        arrays, again = region.arrays(), region.arrays()
        assert not arrays["bn/moving_mean"].read_only and arrays["dense/kernel"].read_only
        np.asarray(arrays["bn/moving_mean"])[0] = 5
        assert (np.asarray(again["bn/moving_mean"]) == GRID).all()
        assert [one["charged"] for one in broker.sessions()[0]["slices"]] == [2 * MIB] * 3
        all_own, none = region.arrays(private=["*"]), region.arrays(private=())
        assert [one.read_only for one in all_own.values()] == [False] * 2
        assert [one.read_only for one in none.values()] == [True] * 2
        for wrong in (lambda: region.arrays(private="bn*"),
                      lambda: gpumem.publish_arrays(session, "other", given, private="bn*")):
            with pytest.raises(gpumem.InvalidArgument, match=r"\['bn\*'\]"):
                wrong()
        assert all(np.asarray(all_own[name]).tolist() == one.tolist() for name, one in given.items())
        del arrays, again, all_own, none
        gc.collect()
        eventually(lambda: len(broker.sessions()[0]["slices"]) == 1, "the publisher's slice alone")


def test_a_stale_layout_is_refused_clearly(session):
    with gpumem.publish_arrays(session, "weights", {"grid": GRID}) as old:
        with gpumem.publish_arrays(session, "weights", {"grid": GRID.T}) as new:
            assert new.version > old.version and new.digest != old.digest
            with session.map_region("weights") as region:
                with pytest.raises(gpumem.StaleLayout) as stale:
                    region.arrays(expect_digest=old.digest)
                assert old.digest.hex()[:16] in str(stale.value) and new.digest.hex()[:16] in str(stale.value)
                assert region.arrays(expect_digest=new.digest)["grid"].shape == (4, 3)
            with session.map_region("weights", version=old.version) as region:
                assert region.arrays(expect_digest=old.digest)["grid"].shape == (3, 4)


def test_arrays_are_good_again_when_their_region_is_mapped_again(session, broker):
    with gpumem.publish_arrays(session, "weights", {"grid": GRID}) as first:
        region = session.map_region("weights")
        grid = np.asarray(region.arrays()["grid"])
        region.unmap()
        with pytest.raises(gpumem.FailedPrecondition, match="unmapped"):
            region.arrays()
        with pytest.raises(gpumem.FailedPrecondition, match="unmapped"):
            region.unmap()
        region.remap()
        assert grid.tolist() == GRID.tolist() and region.version == first.version
        with pytest.raises(gpumem.FailedPrecondition, match="unmap it first"):
            region.remap()
        region.unmap()
        with gpumem.publish_arrays(session, "weights", {"grid": GRID + 1}) as second:
            region.remap(newest=True)
            assert grid.tolist() == (GRID + 1).tolist() and region.version == second.version
            region.unmap()
        with gpumem.publish_arrays(session, "weights", {"other": GRID}), pytest.raises(gpumem.StaleLayout, match="anew"):
            region.remap(newest=True)
        with pytest.raises(gpumem.NotFound):
            region.remap()  # its publication has ended
        assert not region.is_mapped
        region.close()
        for change in (region.unmap, region.remap):
            with pytest.raises(gpumem.FailedPrecondition, match="closed"):
                change()  # its array is there still


def test_the_newest_of_its_device_comes_in_a_regions_place(session):
    with gpumem.publish_replicas(session, "weights", {"grid": GRID}) as first:
        regions = [gpumem.map_nearest(session, "weights", device=device) for device in first.devices]
        grids = [np.asarray(region.arrays()["grid"]) for region in regions]
        with gpumem.publish_replicas(session, "weights", {"grid": GRID + 1}):
            for region in regions:
                region.unmap()
                region.remap(newest=True)
            assert all(grid.tolist() == (GRID + 1).tolist() for grid in grids)
        for region in regions:
            region.close()


def test_a_child_is_not_kept_waiting_for_what_its_parent_is_mapping(session, broker):
    def remap():
        began.set()
        with contextlib.suppress(gpumem.GpumemError):  # the broker is not back in time
            region.remap()

    with gpumem.publish_arrays(session, "weights", {"grid": GRID}), session.map_region("weights") as region:
        region.unmap()
        began = threading.Event()
        thread = threading.Thread(target=remap)
        with broker.stopped():
            thread.start()
            began.wait()
            time.sleep(0.2)  # in the library, which waits for the broker
            process = os.fork()
            if process == 0:
                signal.alarm(30)
                with contextlib.suppress(gpumem.GpumemError):
                    region.close()
                os._exit(0)
            assert os.waitpid(process, 0)[1] == 0
        thread.join()


def test_an_array_that_has_changed_is_stale_and_others_are_not(session):
    def layout(**arrays):
        with gpumem.publish_arrays(session, "other", arrays) as publication:
            return {one.name: one.digest for one in publication.layout.arrays}

    before = layout(grid=GRID, bias=GRID[0])
    assert layout(first=GRID, bias=GRID[0])["bias"] == before["bias"], "wherever it lies"
    with gpumem.publish_arrays(session, "weights", {"more": GRID, "grid": GRID.T, "bias": GRID[0]}), \
            session.map_region("weights") as region:
        assert region.arrays(expect={"bias": before["bias"]})["bias"].shape == (4,)
        with pytest.raises(gpumem.StaleLayout, match=r"another array 'grid'.*float32 \(4, 3\)"):
            region.arrays(expect=before)
        with pytest.raises(gpumem.StaleLayout, match="no array 'gone'"):
            region.arrays(expect={"gone": before["bias"]})


def test_a_publication_that_is_released_goes_on_with_its_readers(session):
    publication = gpumem.publish_arrays(session, "weights", {"grid": GRID})
    with session.map_region("weights"):
        publication.release()
        publication.close()
        with session.map_region("weights") as region:
            assert region.version == publication.version
    with pytest.raises(gpumem.NotFound):
        session.map_region("weights")


def test_a_kept_publication_is_released_to_nobody_yet(session):
    with gpumem.publish_arrays(session, "weights", {"grid": GRID}, keep=True) as publication:
        publication.release()
    with session.map_region("weights", adopt=True) as region:
        assert region.arrays()["grid"].tobytes() == GRID.tobytes()


def test_a_publication_that_is_forgotten_warns(session):
    with pytest.warns(ResourceWarning, match="'weights'.*was forgotten"):
        gpumem.publish_arrays(session, "weights", {"grid": GRID})
        gc.collect()
    with pytest.raises(gpumem.NotFound):
        session.map_region("weights")


def test_layouts_that_others_wrote_are_not_believed(session):
    def written(slice, content: bytes) -> None:
        slice.grow(2 * MIB)
        ok(cu.cuMemcpyHtoD(slice.base + 2 * MIB - len(content), content, len(content)))

    too_large = Layout.packed({"grid": ("float32", (MIB,))}).encoded
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
    with session.open_slice() as slice:
        written(slice, too_large)
        slice.publish("large", layout=len(too_large))
        slice.publish("cut", layout=len(too_large) - 1)
        slice.publish("none")
        slice.publish("other", layout=len(too_large), digest=bytes(range(32)))
        for name, why in (("large", "'grid' ends at byte 4194304"), ("cut", "'cut'.*begins otherwise"),
                          ("none", "does not say"), ("other", "'grid'")):
            with session.map_region(name) as region, pytest.raises(gpumem.InvalidArgument, match=why):
                region.arrays()
        good = Layout.packed({"grid": ("float32", (4,))}).encoded
        written(slice, good)
        slice.publish("other", layout=len(good), digest=bytes(range(32)))
        with session.map_region("other") as region, pytest.raises(gpumem.InvalidArgument, match="digest"):
            region.arrays()
        with pytest.raises(gpumem.InvalidArgument):
            slice.publish("beyond", layout=2 * MIB + 1)


def test_a_region_goes_behind_what_a_slice_holds(session):
    with session.open_slice() as slice:
        slice.grow(2 * MIB)
        with gpumem.publish_arrays(session, "weights", {"grid": GRID}, slice=slice) as publication:
            assert publication.slice is slice and slice.committed == 4 * MIB
            with session.map_region("weights") as region:
                assert region.arrays()["grid"].tobytes() == GRID.tobytes()
        assert slice.committed == 4 * MIB  # the slice is the caller's
        with pytest.raises(gpumem.InvalidArgument):
            gpumem.publish_arrays(session, "a/b\0", {"grid": GRID}, slice=slice)
        assert slice.committed == 4 * MIB


PUBLISHER = """
import os, signal, numpy, gpumem
session = gpumem.Session.connect(label="publisher")
publication = gpumem.publish_arrays(session, "weights", {"grid": numpy.arange(12, dtype="float32").reshape(3, 4)})
print(publication.digest.hex(), flush=True)
input()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_arrays_stay_when_their_publisher_is_killed(session, broker):
    with subprocess.Popen([sys.executable, "-c", PUBLISHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as publisher:
        digest = bytes.fromhex(publisher.stdout.readline())
        region = session.map_region("weights")
        array = region.arrays(expect_digest=digest)["grid"]
        publisher.stdin.write("\n")
        publisher.stdin.flush()
        assert publisher.wait() == -9
    eventually(lambda: [one["label"] for one in broker.sessions()] == ["test"], "the publisher's end")
    assert (np.asarray(array) == GRID).all() and broker.lent() >= 2 * MIB
    with session.map_region("weights") as again:  # one of the tenant has it
        assert (np.asarray(again.arrays()["grid"]) == GRID).all()
    region.close()
    del array, region
    gc.collect()
    eventually(lambda: broker.lent() == 0, "nothing lent")


ENDING = """
import sys, numpy, gpumem
session = gpumem.Session.connect()
region = session.map_region("weights")
array = region.arrays()["grid"]
sys.kept = numpy.from_dlpack(array), array.__dlpack__(), array.buffer(), numpy.asarray(array), region
class Cycle: pass
cycle = Cycle()
cycle.itself, cycle.array, cycle.shown = cycle, array, numpy.from_dlpack(array)
print("done")
"""


def test_arrays_that_outlive_the_interpreter_do_no_harm(session):
    with gpumem.publish_arrays(session, "weights", {"grid": GRID}):
        done = python(ENDING)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_forked_child_leaves_its_parents_arrays_alone(session):
    with gpumem.publish_arrays(session, "weights", {"grid": GRID}), session.map_region("weights") as region:
        array = region.arrays()["grid"]
        process = os.fork()
        if process == 0:
            del array, region
            gc.collect()
            os._exit(0)
        assert os.waitpid(process, 0)[1] == 0
        assert array.tobytes() == GRID.tobytes()
        del array
