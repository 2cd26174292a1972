"""Regions in files: saved, restored, and refused when they are not what was saved."""
import ctypes
import os

import gpumem
import numpy
import pytest
from gpumem import MIB, saved

from brokered import broker, context, kept, session  # noqa: F401, fixtures


@pytest.fixture
def path(session, tmp_path):
    """A saved region of arrays."""
    arrays = {"a": numpy.arange(1000, dtype="float32"), "b": numpy.full(3 * MIB, 7, "uint8")}
    with gpumem.publish_arrays(session, "weights", arrays, metadata={"step": "5"}), session.map_region("weights") as region:
        saved.save(region, tmp_path / "weights.region")
    return tmp_path / "weights.region"


def test_a_region_comes_back_as_it_was(session, path, tmp_path):
    restored = saved.restore(session, "again", path)
    with restored.slice, session.map_region("again") as region:
        assert region.version == restored.version
        arrays = region.arrays()
        assert arrays.layout.metadata == {"step": "5"}
        assert numpy.array_equal(numpy.asarray(arrays["a"]), numpy.arange(1000, dtype="float32"))
        assert bytes(numpy.asarray(arrays["b"])) == b"\7" * (3 * MIB)
        saved.save(region, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == path.read_bytes()
        del arrays
    assert sorted(one.name for one in tmp_path.iterdir()) == ["copy", "weights.region"], "nothing else stays"


def test_a_restored_region_may_be_kept(session, path):
    with saved.restore(session, "kept", path, keep=True).slice:
        pass
    with session.map_region("kept") as region:
        assert set(region.arrays()) == {"a", "b"}
    session.remove_region("kept")


def test_the_command_line_reads_what_python_writes(session, broker, path, tmp_path):
    assert broker.ask("regions", "restore", str(path), "by-command", "--keep")["name"] == "by-command"
    with session.map_region("by-command") as region:
        assert set(region.arrays(expect_digest=region.digest)) == {"a", "b"}
        assert region.arrays().layout.metadata == {"step": "5"}
    broker.ask("regions", "save", "by-command", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    session.remove_region("by-command")


def test_python_reads_what_the_command_line_writes(session, broker, tmp_path):
    content = os.urandom(17 * MIB + 3)  # more than one buffer of either
    (tmp_path / "plain").write_bytes(content)
    broker.ask("publish", str(tmp_path / "plain"), "--keep")
    broker.ask("regions", "save", "plain", str(tmp_path / "plain.region"))
    session.remove_region("plain")
    with saved.restore(session, "again", tmp_path / "plain.region").slice, session.map_region("again") as region:
        assert region.size == len(content) and region.layout == 0
        assert bytes((ctypes.c_ubyte * region.size).from_address(region.address)) == content


@pytest.mark.parametrize("change, why", [
    (lambda content: b"", "no saved region"),
    (lambda content: b"x" + content[1:], "no saved region"),
    (lambda content: content[:-1], "truncated"),
    (lambda content: content + b"x", "bytes of a region"),
    (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "changed"),
    (lambda content: content[:30] + bytes([content[30] ^ 1]) + content[31:], "changed"),
    (lambda content: content[:60] + bytes([content[60] ^ 1]) + content[61:], "changed"),
    (lambda content: content[:16] + b"\xff" * 8 + content[24:], "a layout of"),
    (lambda content: content[:8] + bytes(8) + content[16:], "bytes of a region"),
])
def test_what_is_not_what_was_saved_is_refused(session, path, change, why):
    path.write_bytes(change(path.read_bytes()))
    with session.open_slice() as slice:
        slice.grow(2 * MIB)
        with pytest.raises(gpumem.InvalidArgument, match=why):
            saved.restore(session, "wrong", path, slice=slice)
        assert slice.committed == 2 * MIB
    with pytest.raises(gpumem.NotFound):
        session.map_region("wrong")


def test_what_is_no_file_is_refused_and_not_waited_for(session, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(gpumem.InvalidArgument, match="no saved region"):
        saved.restore(session, "wrong", tmp_path / "pipe")
    with pytest.raises(IsADirectoryError):
        saved.restore(session, "wrong", tmp_path)


def test_a_file_that_cannot_be_written_leaves_the_old_one(session, path, monkeypatch):
    before = path.read_bytes()
    with gpumem.publish_arrays(session, "other", {"a": numpy.zeros(9)}), session.map_region("other") as region:
        def fail(address: int, size: int) -> bytes:
            raise gpumem.GpumemError("a copy that failed")
        monkeypatch.setattr(saved._driver, "copy_out", fail)
        with pytest.raises(gpumem.GpumemError, match="failed"):
            saved.save(region, path)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["weights.region"]
