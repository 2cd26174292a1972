"""cupy.cuda: memory and streams."""
from __future__ import annotations

import contextlib
import ctypes
import types
from collections.abc import Callable, Iterator

import device
from bindings import ok
from cuda.bindings import driver as cu


class UnownedMemory:
    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1):
        if ptr == 0 and device_id < 0:
            raise RuntimeError("UnownedMemory requires explicit device ID for a null pointer.")
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    def __init__(self, mem: object, offset: int):
        assert mem.ptr != 0 or offset == 0
        self.mem, self.ptr = mem, mem.ptr + offset


class CFunctionAllocatorMemory:
    def __init__(self, size: int, param: int, malloc_func: int, free_func: int, device_id: int):
        self.size, self.device_id, self._param = size, device_id, param
        self._free = device.call_pointer(free_func, None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, locked=True)
        malloc = device.call_pointer(malloc_func, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                     locked=True)
        self.ptr = (malloc(param, size, device_id) or 0) if size else 0

    def __del__(self) -> None:
        if self.ptr:
            self._free(self._param, self.ptr, self.device_id)


class CFunctionAllocator:
    def __init__(self, param: int, malloc_func: int, free_func: int, owner: object):
        self._param, self._malloc_func, self._free_func, self._owner = param, malloc_func, free_func, owner

    def malloc(self, size: int) -> MemoryPointer:
        return MemoryPointer(CFunctionAllocatorMemory(size, self._param, self._malloc_func, self._free_func,
                                                      runtime.getDevice()), 0)


class Stream:
    """The null stream, or one that is current within its `with`."""

    _current: list[Stream] = []

    def __init__(self, null: bool = False, non_blocking: bool = False):
        device.be_there()
        self.ptr = 0 if null else int(ok(cu.cuStreamCreate(int(non_blocking))))

    def __del__(self) -> None:
        if getattr(self, "ptr", 0):
            cu.cuStreamDestroy(self.ptr)

    def __enter__(self) -> Stream:
        Stream._current.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Stream._current.pop()

    def synchronize(self) -> None:
        ok(cu.cuStreamSynchronize(self.ptr))


def get_current_stream(device_id: int = -1) -> Stream:
    return Stream._current[-1] if Stream._current else Stream(null=True)


class Device:
    def __init__(self, number: int):
        self.id = number

    def use(self) -> None:
        from bindings import use
        use(self.id)


_allocator: Callable[[int], MemoryPointer] | None = None


def set_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> None:
    global _allocator
    _allocator = allocator


@contextlib.contextmanager
def using_allocator(allocator: Callable[[int], MemoryPointer]) -> Iterator[None]:
    before = _allocator
    set_allocator(allocator)
    yield
    set_allocator(before)


def alloc(size: int) -> MemoryPointer:
    device.be_there()
    assert _allocator is not None, "the fake has no pool of its own"
    return _allocator(size)


runtime = types.SimpleNamespace(getDevice=device.current_device)
memory = types.SimpleNamespace(CFunctionAllocator=CFunctionAllocator)
