"""Arrays of two halves, whose writers die: readers have whole values."""
import gc
import signal
import subprocess
import sys

import gpumem
import numpy as np
import pytest

from brokered import broker, context, kept, session  # noqa: F401, fixtures

SIZE = 1 << 20

# Writes the value of its first argument, and stops where the second says.
WRITER = """
import sys, gpumem
def stop(where):
    if sys.argv[2] == where:
        print(where, flush=True)
        sys.stdin.read()
with gpumem.Session.connect(label="writer") as session, session.map_region("state", writable=True) as region:
    with gpumem.DoubleBuffer(region).write() as arrays:
        table = arrays["table"].numpy()
        table[:len(table) // 2] = int(sys.argv[1])
        stop("half way")
        table[:] = int(sys.argv[1])
        stop("before the commit")
    stop("after the commit")
"""


def writer(value: int, where: str) -> subprocess.Popen:
    """A process that has stopped there."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(value), where], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    assert process.stdout.readline() == where + "\n"
    return process


def values_of(arrays) -> list[int]:
    return np.unique(arrays["table"].numpy()).tolist()


@pytest.fixture(autouse=True)
def publication(session):
    with gpumem.DoubleBuffer.publish(session, "state", {"table": np.full(SIZE, 1, "int32")}):
        yield
        gc.collect()  # what an exception that was expected has kept


def mapped(session, *, writable: bool = False) -> gpumem.DoubleBuffer:
    return gpumem.DoubleBuffer(session.map_region("state", writable=writable))


@pytest.mark.parametrize("where", ["half way", "before the commit"])
def test_a_writer_that_is_killed_leaves_the_value_before(session, where):
    reader = mapped(session)
    for generation, value in ((0, 1), (1, 2)):  # each half is current once
        process = writer(9, where)
        assert reader.read(values_of) == (generation, [value])
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert reader.read(values_of) == (generation, [value])
        following = writer(value + 1, "after the commit")
        assert reader.read(values_of) == (generation + 1, [value + 1])
        following.communicate()
        assert following.returncode == 0


def test_a_writer_that_is_killed_after_its_commit_has_changed_the_value(session):
    reader = mapped(session)
    process = writer(5, "after the commit")
    process.kill()
    process.wait()
    assert reader.read(values_of) == (1, [5])


def test_a_value_that_changes_while_it_is_read_is_read_again(session):
    reader, own_writer = mapped(session), mapped(session, writable=True)

    def write(value: int) -> None:
        with own_writer.write() as arrays:
            arrays["table"].numpy()[:] = value

    seen = []

    def take(arrays) -> list[int]:
        first = arrays["table"].numpy()[:10].copy()
        if len(seen) < 2:  # after the second the half that is read is overwritten
            write(10 + len(seen))
            write(20 + len(seen))
        last = arrays["table"].numpy()[-10:].copy()
        seen.append(np.unique([first, last]).tolist())
        return seen[-1]

    assert reader.read(take) == (4, [21])
    assert seen == [[1, 20], [20, 21], [21]]  # what is read in between is not answered
    with pytest.raises(gpumem.GpumemError, match="each time") as refused:
        reader.read(lambda arrays: write(30), wait=0.0)
    assert refused.value.code == gpumem.Code.ABORTED


def test_what_is_raised_while_writing_changes_nothing(session):
    reader, own_writer = mapped(session), mapped(session, writable=True)
    with pytest.raises(RuntimeError, match="no value"), own_writer.write() as arrays:
        arrays["table"].numpy()[:7] = 9
        raise RuntimeError("no value")
    assert reader.read(values_of) == (0, [1])


def test_a_writer_that_is_not_the_only_one_is_told(session):
    with pytest.raises(gpumem.FailedPrecondition, match="mapped for reading"), mapped(session).write():
        pass
    first, second = mapped(session, writable=True), mapped(session, writable=True)
    with pytest.raises(gpumem.FailedPrecondition, match="another writer"), first.write(), second.write():
        pass


def test_a_region_without_two_halves_is_refused(session):
    table = np.arange(4)
    for arrays in ({"table": table}, {"0/a": table, "1/b": table}, {"0/a": table, "1/a": table[:2]},
                   {"0/a": table, "1/a": table, "b": table}):
        with gpumem.publish_arrays(session, "other", arrays), session.map_region("other") as region:
            with pytest.raises(gpumem.InvalidArgument, match="no two halves"):
                gpumem.DoubleBuffer(region)
