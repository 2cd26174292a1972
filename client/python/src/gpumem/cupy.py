"""CuPy's arrays in memory of gpumem.

    with gpumem.Session.connect() as session:
        cupy.cuda.set_allocator(gpumem.cupy.allocator(session.open_allocator()))
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from . import _abi
from ._library import load
from .allocator import Allocator
from .errors import InvalidArgument

# The function that cupy.cuda.set_allocator takes: bytes to a cupy.cuda.MemoryPointer.
CupyAllocator = Callable[[int], Any]

_MOST_STREAMS = 64  # that are kept for later, without blocks


def allocator(*allocators: Allocator) -> CupyAllocator:
    """For cupy.cuda.set_allocator, or cupy.cuda.using_allocator: memory of the current device's allocator, in the
    order of CuPy's current stream. An array that goes is freed on the stream it was made on, as in CuPy's own pool.

    The function keeps the allocators, and each array keeps its own, for as long as there are such arrays. So it is
    with streams, of which the function keeps a few more that it has met.
    The function it answers raises OutOfMemory, a MemoryError, with the broker's explanation; InvalidArgument: there
    is no allocator for the current device.
    """
    import cupy

    if not allocators:
        raise InvalidArgument("pass an allocator for each device that CuPy is to use")
    on_devices = {one.ordinal: _on_device(cupy, one, [other.ordinal for other in allocators]) for one in allocators}
    if len(on_devices) == 1:
        return next(iter(on_devices.values()))
    device_now, any_device = cupy.cuda.runtime.getDevice, next(iter(on_devices.values()))

    def allocate(size: int) -> Any:
        return on_devices.get(device_now(), any_device)(size)

    return allocate


class _OnStream:
    """An allocator's memory in the order of one stream, for CuPy's C-function interface. Each block of it holds a
    reference to this, so that allocator and stream outlive their blocks."""

    __slots__ = ("_kept", "malloc")

    def __init__(self, cupy: Any, allocator: Allocator, stream: Any):
        library = load()
        retain, release, malloc, free = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in (
            ctypes.pythonapi.Py_IncRef, ctypes.pythonapi.Py_DecRef, library.gpumem_cupy_malloc, library.gpumem_cupy_free))
        param = _abi.sized(_abi.CupyStream, allocator=allocator.handle, stream=stream.ptr, owner=id(self),
                           retain=_abi.Release(retain), release=_abi.Release(release))
        self._kept = (allocator, stream, param)
        self.malloc = cupy.cuda.memory.CFunctionAllocator(ctypes.addressof(param), malloc, free, None).malloc


def _on_device(cupy: Any, allocator: Allocator, ordinals: list[int]) -> CupyAllocator:
    """As allocator(), where `allocator`'s device is the current one."""
    streams: dict[int, _OnStream] = {}
    stream_now, device = cupy.cuda.get_current_stream, allocator.ordinal

    def allocate(size: int) -> Any:
        stream = stream_now(device)
        on = streams.get(stream.ptr)
        if on is None:
            if len(streams) >= _MOST_STREAMS:
                streams.clear()
            on = streams[stream.ptr] = _OnStream(cupy, allocator, stream)
        pointer = on.malloc(size)
        return pointer if pointer.ptr or not size else allocate_slowly(size, stream)

    def allocate_slowly(size: int, stream: Any) -> Any:
        """By a block of Python's, whose call does not hold Python's lock: it may wait, and says why it fails."""
        current = cupy.cuda.runtime.getDevice()
        if current != device:
            there = ", ".join(map(str, sorted(ordinals)))
            raise InvalidArgument(f"CuPy's current device is {current}, and there are allocators for {there} only; open one "
                                  "with Session.open_allocator(device=UUID) and pass it along")
        block = allocator.allocate(size, stream)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(block.address, size, block, device), 0)

    return allocate
