"""torch.cuda.memory: the pluggable allocator, called with the default stream."""
from __future__ import annotations

import ctypes

import device

_STREAM = 0


class _Callbacks:
    """torch._C._CUDAPluggableAllocator: the setters take addresses of C functions."""

    def __init__(self) -> None:
        self.record_stream = lambda pointer, stream: None

    def set_record_stream_fn(self, address: int) -> None:
        self.record_stream = device.call_pointer(address, None, ctypes.c_void_p, ctypes.c_void_p)

    def set_reset_fn(self, address: int) -> None:
        self.reset = device.call_pointer(address, None)

    def set_begin_allocate_to_pool(self, address: int) -> None:
        """Never called here: the real one throws an exception that only C++ catches."""


class CUDAPluggableAllocator:
    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str):
        library = ctypes.CDLL(path_to_so_file)
        alloc, free = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (alloc_fn_name, free_fn_name))
        # Taken with extern "C" and C++ between, an exception would arrive as RuntimeError; here it would end the process.
        self.alloc = device.call_pointer(alloc, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
        self._allocator = _Callbacks()
        self.free = device.call_pointer(free, None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


    def allocator(self) -> _Callbacks:
        return self._allocator


_current: CUDAPluggableAllocator | None = None
_in_use = False


def change_current_allocator(allocator: CUDAPluggableAllocator) -> None:
    global _current
    if _in_use:
        raise RuntimeError("Can't swap an already initialized allocator")
    _current = allocator


def raw_alloc(size: int) -> int:
    global _in_use
    from . import init
    init()
    _in_use = True
    assert _current is not None, "the fake has no allocator of its own"
    return _current.alloc(size, device.current_device(), _STREAM)


def raw_delete(pointer: int, size: int) -> None:
    assert _current is not None
    _current.free(pointer, size, device.current_device(), _STREAM)


def record_stream(pointer: int, stream: int) -> None:
    assert _current is not None
    _current.allocator().record_stream(pointer, stream)


def empty_cache() -> None:
    assert _current is not None
    _current.allocator().reset()


def memory_stats_as_nested_dict(device: int | None = None) -> dict:
    raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")


def memory_allocated(device: int | None = None) -> int:
    return memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["current"]


def memory_reserved(device: int | None = None) -> int:
    return memory_stats_as_nested_dict(device)["reserved_bytes"]["all"]["current"]


def max_memory_allocated(device: int | None = None) -> int:
    return memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["peak"]


def reset_peak_memory_stats(device: int | None = None) -> None:
    raise RuntimeError("CUDAPluggableAllocator does not yet support resetPeakStats.")
