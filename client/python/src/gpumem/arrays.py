"""A region's arrays, by their names, for other packages to use without a copy.

    with session.map_region("weights") as region:
        arrays = region.arrays()
        weight = torch.from_dlpack(arrays["decoder.weight"])

An array keeps its memory mapped for as long as it, or something that another package made of it, is there: also when
the region was closed.
"""
from __future__ import annotations

import builtins
import collections
import fnmatch
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _dlpack, _memory
from ._handle import Handle
from .errors import FailedPrecondition, GpumemError, InvalidArgument
from .layout import ArrayLayout, Layout

# Names of what frameworks change while a model is used, though it is no parameter: running statistics of batch
# normalisation and their counters, state of random generators, positions in caches.
PRIVATE = ("*running_mean", "*running_var", "*num_batches_tracked", "*moving_mean", "*moving_variance",
           "*moving_average*", "*seed_generator_state", "*cache_index")

# Of the buffer protocol: struct's letters, native.
_FORMATS = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I",
            "uint64": "Q", "float16": "e", "float32": "f", "float64": "d"}


def private_names(names: Iterable[str], patterns: Iterable[str]) -> set[str]:
    """The names that match one of the patterns (fnmatch). Raises InvalidArgument for one text in place of a list,
    because its letters would be patterns."""
    if isinstance(patterns, str):
        raise InvalidArgument(f"`private` is {patterns!r}; it is a list of patterns: [{patterns!r}]")
    patterns = set(patterns)
    plain = {pattern for pattern in patterns if not any(letter in pattern for letter in "*?[")}  # a model may name many
    others = patterns - plain
    return {name for name in names if name in plain or any(fnmatch.fnmatchcase(name, pattern) for pattern in others)}


# Memory that could not be let go of yet: its process, how to close it, its device.
_kept: collections.deque[tuple[int, Callable[[], object], int]] = collections.deque()


def _let_go(close: Callable[[], object], ordinal: int, owner: int) -> None:
    if os.getpid() == owner:
        _kept.append((owner, close, ordinal))
        _release_kept()


def _release_kept() -> None:
    """Closes what arrays have left, unless the device cannot be waited for: the next call tries again."""
    for _ in range(len(_kept)):
        try:
            owner, close, ordinal = _kept.popleft()
        except IndexError:  # another thread was faster
            return
        if os.getpid() != owner:
            continue
        try:
            with _memory.copies(ordinal) as copies:
                copies.synchronize_unless_captured()  # frameworks drop tensors while the device still works on them
            close()
        except GpumemError:
            _kept.append((owner, close, ordinal))


class Held:
    """Memory of a device or of the host store, closed when nothing refers to this any more and the device has come to the end of its work."""

    def __init__(self, close: Callable[[], object], ordinal: int):
        _release_kept()
        self.ordinal, self._owner = ordinal, os.getpid()
        self._finalizer = weakref.finalize(self, _let_go, close, ordinal, os.getpid())
        self._finalizer.atexit = False

    def check_not_forked(self) -> None:
        """Raises FailedPrecondition. A child has memory of the host store, as long as it lives."""
        if self.ordinal != _memory.HOST and os.getpid() != self._owner:
            raise FailedPrecondition("this memory is the parent process's, and a forked child does not have it: map the region "
                                     "here, in a child that was forked before the driver was started or is spawned")


class Array(Handle):
    """An array of a region, or a copy of one.

    Other packages take it without a copy: by DLPack (torch.from_dlpack, jax.dlpack.from_dlpack, cupy.from_dlpack,
    numpy.from_dlpack) and by `__cuda_array_interface__`. In the host store, and on a simulated GPU, whose memory is the
    host's, it is an array of the CPU for DLPack, and numpy.asarray and memoryview(array.buffer()) take it, too. A write to
    a read-only array faults. DLPack before 1.0 does not say that an array is.
    Threads  any.
    """

    __slots__ = ("_layout", "_address", "_held", "_read_only", "__weakref__")

    def __init__(self, layout: ArrayLayout, address: int, held: Held, *, read_only: bool):
        """Use Region.arrays. `address`: of the memory that the layout's offset counts from."""
        self._layout, self._address, self._held, self._read_only = layout, address + layout.offset, held, read_only

    @property
    def name(self) -> str:
        return self._layout.name

    @property
    def dtype(self) -> str:
        """As NumPy's: float32, bfloat16."""
        return self._layout.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes."""
        return self._layout.strides

    @property
    def metadata(self) -> Mapping[str, str]:
        """Texts of the publisher's about this array."""
        return self._layout.metadata

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._layout.itemsize

    @property
    def nbytes(self) -> int:
        """Of all elements."""
        return self._layout.nbytes

    @property
    def address(self) -> int:
        """Of the first element; a CUdeviceptr in value, or, in the host store, an address of this process. The array must be
        kept while it is used. Raises FailedPrecondition in a forked child, as does all that shows the elements, if the memory
        is a device's."""
        self._held.check_not_forked()
        return self._address

    @property
    def ordinal(self) -> int:
        """This process's number of the device; -1: the host store."""
        return self._held.ordinal

    @property
    def read_only(self) -> bool:
        return self._read_only

    @property
    def is_on_host(self) -> bool:
        """Whether the host can read the address: in the host store, and on a simulated GPU."""
        return _memory.is_host_memory(self.ordinal)

    def tobytes(self) -> builtins.bytes:
        """A copy of the elements, on the host, in C's order. Raises InvalidArgument: the array is not in that
        order."""
        if not self._layout.is_contiguous:
            self._not_contiguous()
        address = self.address
        with _memory.copies(self.ordinal) as copies:
            content: builtins.bytes = copies.copy_out(address, self.nbytes)
            return content

    def buffer(self) -> memoryview:
        """The elements' bytes in place, for the host. Raises InvalidArgument (not in C's order), BufferError (a GPU)."""
        if not self.is_on_host:
            raise BufferError(f"array {self.name!r} is in a GPU's memory; tobytes() copies it")
        if not self._layout.is_contiguous:
            self._not_contiguous()
        return _memory.view(self.address, self.nbytes, self._held, read_only=self._read_only)

    def __buffer__(self, flags: int) -> memoryview:
        """From Python 3.12 on: the elements by their type and shape. Raises BufferError, also where the buffer protocol has no
        name for them; NumPy then takes `__array_interface__`."""
        form = _FORMATS.get(self.dtype)
        try:
            if form is None or 0 in self.shape:
                raise BufferError(f"the buffer protocol has no name for {self.dtype} {self.shape}")
            shown: memoryview = self.buffer().cast(form, self.shape)  # type: ignore[call-overload]
            return shown
        except (InvalidArgument, TypeError, ValueError) as error:
            raise BufferError(str(error)) from error

    def numpy(self) -> Any:
        """A NumPy array of the same memory; of types that NumPy does not have by ml_dtypes. Raises BufferError (a GPU),
        ImportError."""
        import numpy

        if not self.is_on_host:
            raise BufferError(f"array {self.name!r} is in a GPU's memory; tobytes() copies it")
        if self._layout.type.typestr is not None:
            return numpy.asarray(self)
        import ml_dtypes

        dtype = numpy.dtype(getattr(ml_dtypes, self.dtype))
        return numpy.asarray(_Described(self, f"<u{self.itemsize}")).view(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_dlpack.CPU, 0) if self.is_on_host else (_dlpack.CUDA, self.ordinal)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule. A region does not change, so no stream is waited for. Raises BufferError: a copy, or another device,
        was asked for."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("gpumem shows arrays where they are, without a copy")
        shown = _dlpack.Strided(self.address, self._layout.type, self.shape, self.strides, self.__dlpack_device__(), self)
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        return _dlpack.capsule_of(shown, versioned=versioned, read_only=self._read_only)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.ordinal == _memory.HOST:
            raise AttributeError("__cuda_array_interface__: this array is in the machine's memory")
        return self._described()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if not self.is_on_host:
            raise AttributeError("__array_interface__: this array is in a GPU's memory")
        return self._described()

    def described_as(self, typestr: str) -> dict[str, Any]:
        """As the array interfaces have it."""
        return {"shape": self.shape, "typestr": typestr, "data": (self.address, self._read_only), "version": 3,
                "strides": None if self._layout.is_contiguous else self.strides}

    def _described(self) -> dict[str, Any]:
        typestr = self._layout.type.typestr
        if typestr is None:
            raise AttributeError(f"the array interfaces have no name for {self.dtype}")
        return self.described_as(typestr)

    def _not_contiguous(self) -> Any:
        raise InvalidArgument(f"array {self.name!r} is not in C's order, without gaps")

    def __repr__(self) -> str:
        kind = "read-only" if self._read_only else "writable"
        return f"<gpumem.Array {self.name!r}, {self.dtype} {self.shape}, {kind}>"


class _Described:
    """An array as NumPy reads it, of another type."""

    def __init__(self, array: Array, typestr: str):
        self._array = array
        self.__array_interface__ = array.described_as(typestr)


class Arrays(Handle, Mapping[str, Array]):
    """The arrays of a region, by name, in the order of its layout."""

    def __init__(self, layout: Layout, arrays: Iterable[Array]):
        self._layout = layout
        self._arrays = {array.name: array for array in arrays}

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def metadata(self) -> Mapping[str, str]:
        """Texts of the publisher's about them all."""
        return self._layout.metadata

    @property
    def nbytes(self) -> int:
        """Of all arrays' elements."""
        return sum(array.nbytes for array in self._arrays.values())

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"<gpumem.Arrays: {len(self)} arrays of {self.nbytes} bytes>"
