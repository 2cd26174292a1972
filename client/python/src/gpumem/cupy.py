"""CuPy's arrays in memory of gpumem.

    with gpumem.Session.connect() as session:
        cupy.cuda.set_allocator(gpumem.cupy.allocator(session.open_allocator()))
"""
from __future__ import annotations

import collections
import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

from ._library import load
from .allocator import Allocator
from .errors import FailedPrecondition, InvalidArgument, OutOfMemory

# The handles of the default streams: null, legacy, and the thread's own.
_LAST_DEFAULT = 2

# What cupy.cuda.set_allocator takes: bytes to a cupy.cuda.MemoryPointer.
CupyAllocator = Callable[[int], Any]


def _by_device(allocators: tuple[Allocator, ...]) -> dict[int, Allocator]:
    if not allocators:
        raise InvalidArgument("pass an allocator for each device that CuPy is to use")
    return {allocator.ordinal: allocator for allocator in allocators}


def _current(cupy: Any, allocators: dict[int, Allocator]) -> Allocator:
    device = cupy.cuda.runtime.getDevice()
    try:
        return allocators[device]
    except KeyError:
        there = ", ".join(map(str, sorted(allocators)))
        raise InvalidArgument(f"CuPy's current device is {device}, and there are allocators for {there} only; open one "
                              "with Session.open_allocator(device=UUID) and pass it along") from None


class _StreamOrdered:
    """Memory of the current device's allocator, in the order of CuPy's current stream.

    CuPy destroys a stream when nobody has it any more, and tells nobody. So the streams that were used last are kept,
    and each is named to its allocator before it may go."""

    KEPT = 64

    def __init__(self, cupy: Any, allocators: dict[int, Allocator]):
        self._cupy, self._allocators = cupy, allocators
        self._streams: collections.OrderedDict[int, tuple[Any, Allocator]] = collections.OrderedDict()
        self._turn = threading.Lock()

    def __call__(self, size: int) -> Any:
        chosen = _current(self._cupy, self._allocators)
        address, block = 0, None
        if size:
            stream = self._cupy.cuda.get_current_stream()
            block = chosen.allocate(size, stream)
            address = block.address
            self._keep(stream, chosen)
        memory = self._cupy.cuda.UnownedMemory(address, size, block, chosen.ordinal)
        return self._cupy.cuda.MemoryPointer(memory, 0)

    def _keep(self, stream: Any, chosen: Allocator) -> None:
        handle = stream.ptr
        if handle <= _LAST_DEFAULT:
            return
        with self._turn:
            self._streams[handle] = stream, chosen
            self._streams.move_to_end(handle)
            oldest = self._streams.popitem(last=False)[1] if len(self._streams) > self.KEPT else None
        if oldest is not None:
            oldest[1].release_stream(oldest[0])

    def __del__(self, is_finalizing: Any = sys.is_finalizing, gone: Any = FailedPrecondition) -> None:
        if is_finalizing():
            return
        for stream, chosen in getattr(self, "_streams", {}).values():
            try:
                chosen.release_stream(stream)
            except gone:  # closed, or a parent process's
                pass


def allocator(*allocators: Allocator) -> CupyAllocator:
    """For cupy.cuda.set_allocator, or cupy.cuda.using_allocator: memory of the current device's allocator, in the
    order of CuPy's current stream. An array that goes is freed on the stream it was made on, as in CuPy's own pool.

    It keeps the allocators, and each array its own, for as long as there are such arrays.
    The function it answers raises OutOfMemory, a MemoryError, with the broker's explanation; InvalidArgument: there
    is no allocator for the current device.
    """
    import cupy

    return _StreamOrdered(cupy, _by_device(allocators))


# What CuPy's C functions were given: CuPy keeps it no longer than the function, and an array may stay longer.
_lent: list[Allocator] = []


def c_function_allocator(allocator: Allocator) -> CupyAllocator:
    """As `allocator`, by CuPy's C-function interface, for one device: each call is cheaper, and its arrays come and
    go in the order of the legacy default stream, whatever CuPy's current stream is. Work on non-blocking streams
    synchronises before it lets go of an array. The allocator is kept for as long as the process; it can be closed
    when no array is left.
    """
    import cupy

    library = load()
    malloc, free = (ctypes.cast(function, ctypes.c_void_p).value
                    for function in (library.gpumem_cupy_malloc, library.gpumem_cupy_free))
    functions = cupy.cuda.memory.CFunctionAllocator(allocator.handle, malloc, free, allocator)
    _lent.append(allocator)

    def allocate(size: int) -> Any:
        pointer = functions.malloc(size)
        if not pointer.ptr and size:  # CuPy would go on with it
            raise OutOfMemory(f"there are no {size} bytes to be had; standard error says why")
        return pointer

    return allocate
