"""The same arrays published twice: one copy of them, compared byte by byte."""
import gc
import hashlib
import subprocess
import sys

import gpumem
import gpumem.safetensors
import numpy as np
import pytest
from cuda.bindings import driver as cu
from gpumem import MIB, _driver, deduplicate

from bindings import ok
from brokered import broker, context, eventually, kept, session  # noqa: F401, fixtures

SAME = {"a": np.arange(MIB, dtype="float32"), "b": np.full(3, 7, "uint8")}  # gaps between them, and behind


def publish(session, name, arrays=SAME, **options):
    return gpumem.publish_arrays(session, name, arrays, deduplicate=True, **options)


def memory(broker, name: str) -> list:
    return [(one["memory"], one["offset"]) for one in broker.ask("regions")["regions"] if one["name"] == name]


def test_the_same_arrays_are_there_once(broker, session):
    with publish(session, "first") as first:
        before = broker.lent()
        with publish(session, "second") as second:
            assert (first.is_deduplicated, second.is_deduplicated) == (False, True)
            assert broker.lent() == before and memory(broker, "first") == memory(broker, "second")
            assert second.version > first.version and second.digest == first.digest
            with session.map_region("second") as region:
                arrays = region.arrays()
                assert arrays["a"].tobytes() == SAME["a"].tobytes() and arrays["b"].tobytes() == SAME["b"].tobytes()
            del arrays
            with pytest.raises(gpumem.FailedPrecondition, match="no slice"):
                second.slice
        with pytest.raises(gpumem.NotFound):
            session.map_region("second")
        with session.map_region("first"):
            pass
        gc.collect()


def test_the_memory_stays_for_the_name_that_stays(broker, session):
    first, second = publish(session, "first"), publish(session, "second")
    first.close()
    with session.map_region("second") as region:
        arrays = region.arrays()
        assert arrays["a"].tobytes() == SAME["a"].tobytes()
        del arrays
    gc.collect()
    with publish(session, "second") as newer:
        assert newer.is_deduplicated, "a version of the same name, too"
        second.close()
        with session.map_region("second") as region:
            assert region.version == newer.version


def test_other_arrays_have_a_copy_of_their_own(session):
    other = {"a": SAME["a"], "b": np.full(3, 8, "uint8")}
    with publish(session, "first"), publish(session, "other", other) as values, \
            publish(session, "named", {"c": SAME["a"], "b": SAME["b"]}) as names, \
            publish(session, "metadata", metadata={"step": "1"}) as metadata, \
            publish(session, "array metadata", array_metadata={"a": {"step": "1"}}) as of_array, \
            gpumem.publish_arrays(session, "plain", SAME) as plain:
        assert not any(one.is_deduplicated for one in (values, names, metadata, of_array, plain))


def test_what_was_not_published_so_is_not_found(session):
    with gpumem.publish_arrays(session, "plain", SAME), publish(session, "first") as first:
        assert not first.is_deduplicated


def test_nobody_gets_the_memory_who_may_not_have_the_region(session):
    with publish(session, "first"), publish(session, "open", sharing=gpumem.Sharing.PUBLIC) as open, \
            publish(session, "private") as private:
        assert not open.is_deduplicated and private.is_deduplicated


def test_a_hash_of_other_bytes_is_seen_through(broker, session):
    """Whoever publishes says what the hash is of."""
    with publish(session, "first") as first, session.open_slice() as slice:
        content = deduplicate.Content(first.layout, lambda: iter([(first.layout.arrays[0].offset, SAME["a"]),
                                                                  (first.layout.arrays[1].offset, SAME["b"])]))
        assert content.hash() == bytes.fromhex(broker.ask("regions")["regions"][0]["content"])
        slice.grow(content.size)
        slice.publish("liar", 0, content.size, layout=len(first.layout.encoded), digest=first.digest,
                      content=content.hash())
        with publish(session, "second") as second:
            assert not second.is_deduplicated, "the liar's is the newest, and has other bytes"
            with publish(session, "third") as third:
                assert third.is_deduplicated, "the newest is right now"


def test_gaps_are_compared_too(session):
    """A byte behind an array is one of the region's."""
    with publish(session, "first") as first, session.map_region("first") as region:
        right, last = _driver.copy_out(region.address, region.size), first.layout.arrays[-1]
    gc.collect()
    wrong = bytearray(right)
    wrong[last.offset + last.nbytes] ^= 1
    with session.open_slice() as slice:
        slice.grow(len(wrong))
        _driver.write(slice.base, bytes(wrong))
        slice.publish("liar", 0, len(wrong), layout=len(first.layout.encoded), digest=first.digest,
                      content=hashlib.sha256(right).digest())
        with publish(session, "second") as second:
            assert not second.is_deduplicated


@pytest.fixture(autouse=True)
def current(context):
    ok(cu.cuCtxPushCurrent(context))
    yield
    ok(cu.cuCtxPopCurrent())


def test_arrays_on_the_device_are_read_from_there(session):
    with publish(session, "first") as first, session.map_region("first") as region:
        arrays = region.arrays()
        with publish(session, "second", {name: array for name, array in arrays.items()}) as second:
            assert second.is_deduplicated == (second.digest == first.digest)
        del arrays
    gc.collect()


def test_a_slice_that_is_passed_has_its_size_of_before(session):
    with publish(session, "first"), session.open_slice() as slice:
        slice.grow(2 * MIB)
        with publish(session, "second", slice=slice) as second:
            assert second.is_deduplicated and slice.committed == 2 * MIB
        with publish(session, "other", {"a": np.arange(5)}, slice=slice) as other:
            assert not other.is_deduplicated and other.slice is slice and slice.committed == 4 * MIB


def test_a_kept_one_is_used_again(broker, session):
    publish(session, "kept", keep=True).release()
    before = broker.lent()
    with publish(session, "second") as second:
        assert second.is_deduplicated and broker.lent() == before
    with session.map_region("kept"):
        pass
    gc.collect()
    session.remove_region("kept")


def test_of_two_that_begin_together_the_later_finds_the_copy(broker, session, monkeypatch):
    """One is published while the other loads its own."""
    other = gpumem.Session.connect(label="other")
    loaded: list = []
    map_content = gpumem.Session.map_content

    def first_look(self, *given, **options):
        try:
            return map_content(self, *given, **options)
        finally:
            if self is session and not loaded:
                loaded.append(publish(other, "first"))

    monkeypatch.setattr(gpumem.Session, "map_content", first_look)
    with publish(session, "second") as second:
        assert second.is_deduplicated and memory(broker, "first") == memory(broker, "second")
    loaded[0].close()
    other.close()


def test_a_region_that_ends_meanwhile_is_not_missed(session, monkeypatch):
    first = publish(session, "first")
    is_in = deduplicate.Content.is_in

    def ends(self, region):
        same = is_in(self, region)
        first.close()
        return same

    monkeypatch.setattr(deduplicate.Content, "is_in", ends)
    with publish(session, "second") as second:
        assert not second.is_deduplicated
    gc.collect()


CRASH = """
import sys, numpy, gpumem
session = gpumem.Session.connect()
one = gpumem.publish_arrays(session, "second", {"a": numpy.arange(1 << 20, dtype="float32"), "b": numpy.full(3, 7, "uint8")},
                            deduplicate=True)
print(one.is_deduplicated, flush=True)
sys.stdin.read()
"""


def test_a_publisher_that_is_killed_takes_nothing_along(broker, session):
    child = subprocess.Popen([sys.executable, "-c", CRASH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "False\n"
    with publish(session, "first") as first:
        assert first.is_deduplicated
        child.kill()
        child.wait()
        eventually(lambda: len(broker.sessions()) == 1, "the other session is gone")
        with session.map_region("second") as region:
            arrays = region.arrays()
            assert arrays["a"].tobytes() == SAME["a"].tobytes(), "the memory has a process of the tenant"
            del arrays
        gc.collect()
        session.remove_region("second")


def test_several_processes_make_it_once_and_share_it_with_another_name(session):
    with publish(session, "first"), \
            gpumem.map_or_publish_arrays(session, "once", lambda: SAME, deduplicate=True) as region:
        arrays = region.arrays()
        assert arrays["a"].tobytes() == SAME["a"].tobytes()
        del arrays
    gc.collect()
    with pytest.raises(gpumem.NotFound):
        session.map_region("once")


def test_a_file_is_there_once(tmp_path, session):
    path, content = tmp_path / "model.safetensors", np.arange(1000, dtype="float32")
    header = b'{"weight":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}' % (content.size, content.nbytes)
    path.write_bytes(len(header).to_bytes(8, "little") + header + content.tobytes())
    with gpumem.safetensors.publish_safetensors(session, path, "file", deduplicate=True, staging=1000), \
            gpumem.safetensors.publish_safetensors(session, path, "again", deduplicate=True) as again, \
            publish(session, "arrays", {"weight": content}) as arrays:
        assert again.is_deduplicated and arrays.is_deduplicated


def test_bytes_are_named(session):
    with pytest.raises(gpumem.InvalidArgument):
        session.map_content(b"short", 1)
    with pytest.raises(gpumem.InvalidArgument):
        session.map_content(b"", 1)
    from gpumem.publish import publish_layout
    with pytest.raises(gpumem.InvalidArgument, match="bytes"):
        publish_layout(session, "none", gpumem.layout.Layout.packed({"a": ("uint8", (3,))}, {}, []), lambda base: None,
                       deduplicate=True)


def test_what_is_deduplicated_is_sealed(session):
    with publish(session, "first"):
        with pytest.raises(gpumem.FailedPrecondition, match="is sealed"):
            session.map_region("first", writable=True)


def test_what_is_sealed_is_mapped_for_reading_alone(session):
    with gpumem.publish_arrays(session, "sealed", SAME, seal=True):
        with pytest.raises(gpumem.FailedPrecondition, match="is sealed"):
            session.map_region("sealed", writable=True)
        with session.map_region("sealed") as region:
            arrays = region.arrays()
            assert arrays["a"].tobytes() == SAME["a"].tobytes()
            del arrays
    gc.collect()
