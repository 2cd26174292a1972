"""CuPy's arrays in memory of gpumem.

    with gpumem.Session.connect() as session:
        cupy.cuda.set_allocator(gpumem.cupy.allocator(session.open_allocator()))
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ._library import load
from .allocator import Allocator
from .errors import InvalidArgument, OutOfMemory

# The function that cupy.cuda.set_allocator takes: bytes to a cupy.cuda.MemoryPointer.
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


def allocator(*allocators: Allocator) -> CupyAllocator:
    """For cupy.cuda.set_allocator, or cupy.cuda.using_allocator: memory of the current device's allocator, in the
    order of CuPy's current stream. An array that goes is freed on the stream it was made on, as in CuPy's own pool.

    The function keeps the allocators, and each array keeps its own, for as long as there are such arrays.
    The function it answers raises OutOfMemory, a MemoryError, with the broker's explanation; InvalidArgument: there
    is no allocator for the current device.
    """
    import cupy

    by_device = _by_device(allocators)

    def allocate(size: int) -> Any:
        chosen = _current(cupy, by_device)
        block = chosen.allocate(size, cupy.cuda.get_current_stream()) if size else None
        memory = cupy.cuda.UnownedMemory(block.address if block else 0, size, block, chosen.ordinal)
        return cupy.cuda.MemoryPointer(memory, 0)

    return allocate


# Allocators passed to CuPy's C functions. CuPy keeps one no longer than the function; an array may stay longer.
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
