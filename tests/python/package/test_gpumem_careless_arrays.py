"""Arrays of programs that are careless: threads that share a slice or a region, work of another device, other packages' names."""
import ctypes
import gc
import threading
import time

import gpumem
import numpy as np
import pytest
from cuda.bindings import driver as cu
from gpumem import MIB, region

from bindings import ok, use
from brokered import broker, eventually, kept  # noqa: F401, fixtures

GRID = np.arange(12, dtype="float32").reshape(3, 4)


@pytest.fixture(scope="module")
def context():
    """The devices' own contexts, which stay once they are made."""
    for device in (1, 0):
        use(device)


@pytest.fixture
def session(context):
    use(0)
    with gpumem.Session.connect(label="test") as session:
        yield session


def together(count: int, work) -> list:
    """The results of work(i) in `count` threads, which start together."""
    barrier, answers = threading.Barrier(count), [None] * count

    def one(i: int) -> None:
        barrier.wait()
        try:
            answers[i] = work(i)
        except BaseException as error:  # noqa: BLE001, told to the test
            answers[i] = error

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_threads_publish_into_one_slice(session):
    contents = [np.full(300_000, i, dtype="uint8") for i in range(6)]
    with session.open_slice() as place:
        published = together(6, lambda i: gpumem.publish_arrays(session, f"of-{i}", {"all": contents[i]}, slice=place))
        for i, publication in enumerate(published):
            assert isinstance(publication, gpumem.Publication), publication
            with session.map_region(f"of-{i}") as mapped:
                assert mapped.arrays()["all"].tobytes() == contents[i].tobytes()


def test_a_thread_that_fails_takes_nothing_of_another(session):
    def work(i: int):
        if i % 2:
            with pytest.raises(gpumem.InvalidArgument):
                gpumem.publish_arrays(session, "bad name\n", {"all": GRID}, slice=place)
            return None
        return gpumem.publish_arrays(session, f"good-{i}", {"all": GRID + i}, slice=place)

    with session.open_slice() as place:
        answers = together(6, work)
        assert [type(one).__name__ for one in answers] == 3 * ["Publication", "NoneType"], answers
        for i in range(0, 6, 2):
            with session.map_region(f"good-{i}") as mapped:
                assert mapped.arrays()["all"].numpy().tolist() == (GRID + i).tolist()


def test_arrays_that_go_while_a_graph_is_captured_are_let_go_of_afterwards(session, broker):
    def arrays_of(name: str) -> gpumem.Arrays:
        with gpumem.publish_arrays(session, name, {"grid": GRID}), session.map_region(name) as region:
            return region.arrays()

    arrays, stream = arrays_of("first"), ok(cu.cuStreamCreate(0))
    ok(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    del arrays
    gc.collect()
    assert broker.lent() > 0
    ok(cu.cuGraphDestroy(ok(cu.cuStreamEndCapture(stream))))
    ok(cu.cuStreamDestroy(stream))
    arrays_of("second")
    gc.collect()
    eventually(lambda: broker.lent() == 0, "nothing lent")


def test_threads_ask_for_the_arrays_of_one_region(session, monkeypatch):
    held = region.Held

    class SlowlyHeld(held):
        def __init__(self, *arguments):
            time.sleep(0.05)
            super().__init__(*arguments)

    monkeypatch.setattr(region, "Held", SlowlyHeld)
    with gpumem.publish_arrays(session, "weights", {"grid": GRID}), session.map_region("weights") as mapped:
        answers = together(4, lambda i: mapped.arrays()["grid"].tobytes())
        assert answers == 4 * [GRID.tobytes()]


def test_work_on_another_device_is_waited_for(session):
    """The work fills an array of the second device, after half a second."""
    first, second = (device.device for device in session.usage())
    use(1)
    address, stream = ok(cu.cuMemAlloc(MIB)), ok(cu.cuStreamCreate(1))
    late = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(0.5))
    ok(cu.cuMemsetD8(address, 1, MIB))
    ok(cu.cuLaunchHostFunc(stream, cu.CUhostFn(ctypes.cast(late, ctypes.c_void_p).value), 0))
    ok(cu.cuMemsetD8Async(address, 2, MIB, stream))
    use(0)

    class OnTheSecond:
        __cuda_array_interface__ = {"shape": (MIB,), "typestr": "|u1", "data": (int(address), False), "version": 3}

    with gpumem.publish_arrays(session, "late", {"all": OnTheSecond()}, device=first), session.map_region("late") as mapped:
        assert mapped.device == first != second
        assert set(mapped.arrays()["all"].tobytes()) == {2}
    use(1)
    ok(cu.cuStreamDestroy(stream))
    ok(cu.cuMemFree(address))


class Tensor:
    """Of PyTorch, as far as publishing looks at it, in device memory: `typestr` is what its array interface calls the elements."""

    def __init__(self, content: np.ndarray, dtype: str, typestr: str | None, conjugate=None):
        self._shape, self.dtype, self._typestr, self._conjugate = content.shape, f"torch.{dtype}", typestr, conjugate
        self._address = ok(cu.cuMemAlloc(content.nbytes))
        ok(cu.cuMemcpyHtoD(self._address, content.tobytes(), content.nbytes))

    def __del__(self):
        cu.cuMemFree(self._address)

    def detach(self):
        return self

    def resolve_conj(self):
        return self if self._conjugate is None else Tensor(self._conjugate, self.dtype.removeprefix("torch."), self._typestr)

    @property
    def __cuda_array_interface__(self):
        if self._typestr is None:
            raise KeyError(self.dtype)  # as of a table of names
        return {"shape": self._shape, "typestr": self._typestr, "data": (int(self._address), False), "version": 3}


@pytest.mark.parametrize("typestr", ["<f2", "<V2"])
def test_bfloat16_of_pytorch_is_no_float16(session, typestr):
    bits = np.arange(64, dtype="uint16")
    with gpumem.publish_arrays(session, "w", {"bf": Tensor(bits, "bfloat16", typestr)}), session.map_region("w") as mapped:
        array = mapped.arrays()["bf"]
        assert array.dtype == "bfloat16" and array.tobytes() == bits.tobytes()


def test_a_conjugate_is_published_as_what_it_stands_for(session):
    values = np.array([1 + 2j, 3 - 4j], dtype="complex64")
    tensor = Tensor(values, "complex64", "<c8", conjugate=values.conj())
    with gpumem.publish_arrays(session, "w", {"c": tensor}), session.map_region("w") as mapped:
        assert mapped.arrays()["c"].tobytes() == values.conj().tobytes()


def test_elements_without_a_name_are_refused_by_the_arrays_name(session):
    with pytest.raises(gpumem.InvalidArgument, match="'odd'"):
        gpumem.publish_arrays(session, "w", {"odd": Tensor(np.zeros(4, dtype="uint8"), "float8_e4m3fnuz", None)})


class OfItsOwnErrors:
    """A tensor of a package whose errors are of its own; TensorFlow's of texts ends the process."""

    def __init__(self, dtype: object):
        self.dtype, self.asked = dtype, False

    def __dlpack__(self, **_):
        self.asked = True
        raise type("PackageError", (Exception,), {})("no such type")


class Named:
    def __init__(self, name: str):
        self.name = name


@pytest.mark.parametrize("dtype", [Named("string"), Named("qint8"), "torch.complex32", Named("int4")])
def test_another_package_is_not_asked_for_elements_that_have_no_name(session, dtype):
    tensor = OfItsOwnErrors(dtype)
    with pytest.raises(gpumem.InvalidArgument, match="'odd'.*no type of elements is called"):
        gpumem.publish_arrays(session, "w", {"odd": tensor})
    assert not tensor.asked


@pytest.mark.parametrize("dtype", [Named("float32"), "torch.float32", None])
def test_another_packages_errors_name_the_array(session, dtype):
    with pytest.raises(gpumem.InvalidArgument, match="'odd'.*no such type"):
        gpumem.publish_arrays(session, "w", {"odd": OfItsOwnErrors(dtype)})


def at_nothing(shape: tuple) -> object:
    described = {"shape": shape, "typestr": "<f4", "data": (0, False), "version": 3}
    return type("AtNothing", (), {"__array_interface__": described})()


def test_elements_at_no_address_are_refused_by_the_arrays_name(session):
    with pytest.raises(gpumem.InvalidArgument, match="'odd'.*address is 0"):
        gpumem.publish_arrays(session, "w", {"odd": at_nothing((4,))})
    gpumem.publish_arrays(session, "w", {"none": at_nothing((4, 0))}).close()


@pytest.mark.parametrize("name", ["\udc80", b"a", 7])
def test_what_is_no_text_is_refused_as_a_name(session, name):
    for call in (lambda: session.map_region(name), lambda: session.map_region("w", owner=name),
                 lambda: gpumem.publish_arrays(session, name, {"a": GRID}), lambda: session.remove_region(name),
                 lambda: gpumem.publish_arrays(session, "w", {"a": GRID}, sharing=gpumem.Sharing.NAMED, readers=[name])):
        with pytest.raises(gpumem.InvalidArgument, match="is text|UTF-8"):
            call()
    with pytest.raises(gpumem.InvalidArgument, match="the name of an array"):
        gpumem.publish_arrays(session, "w", {name: GRID})


def test_a_buffer_has_the_arrays_type_and_shape(session):
    """What NumPy asks first from Python 3.12 on."""
    arrays = {"grid": GRID, "one": np.float64(3), "flags": np.array([True, False]), "empty": np.zeros((0, 3))}
    with gpumem.publish_arrays(session, "w", arrays), session.map_region("w") as mapped:
        found = mapped.arrays()
        grid = found["grid"].__buffer__(0)
        assert (grid.format, grid.shape, grid.tolist()) == ("f", (3, 4), GRID.tolist()) and grid.readonly
        assert found["one"].__buffer__(0).tolist() == 3.0 and found["flags"].__buffer__(0).tolist() == [True, False]
        with pytest.raises(BufferError):
            found["empty"].__buffer__(0)
        assert np.asarray(found["empty"]).shape == (0, 3)
