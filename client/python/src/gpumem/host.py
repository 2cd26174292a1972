"""Memory of the machine from the broker's host store, pinned for its GPUs."""
from __future__ import annotations

import os
import sys
from typing import Any, SupportsIndex

from . import _dlpack, _driver, _memory
from ._dtypes import dtype_of
from ._handle import Handle
from ._library import leave
from ._values import size_of
from .allocator import Allocator, Statistics
from .errors import FailedPrecondition


class HostBuffer(Handle):
    """Bytes of the machine's memory, of the size that was asked for, until free(), the end of its `with`, or until neither
    this nor a view of it is there.

    NumPy takes it without a copy (numpy.asarray(buffer), numpy.frombuffer(buffer.view(), dtype)), and so does every package
    that reads DLPack or the buffer protocol: torch.from_dlpack(buffer) is a tensor of the CPU.
    Threads  any.
    Fork     a child does not have the memory: to read it there is a fault (SIGSEGV).
    """

    __slots__ = ("_memory", "_address", "_size", "_is_free", "__weakref__")

    def __init__(self, memory: HostMemory, address: int, size: int):
        """Use HostMemory.buffer."""
        self._is_free = False
        self._memory, self._address, self._size = memory, address, size

    @property
    def address(self) -> int:
        """In this process; a multiple of 256. Raises FailedPrecondition when it is free, and in a forked child, as does all
        that shows the bytes."""
        if self._is_free:
            raise FailedPrecondition("this buffer has been freed")
        self._memory.check_not_forked()
        return self._address

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    @property
    def device_address(self) -> int:
        """By which kernels of the current device reach it: a CUdeviceptr in value. Raises FailedPrecondition (the memory is
        not pinned), GpumemError (no context is current)."""
        if not self._memory.is_pinned:
            raise FailedPrecondition("no device reaches this buffer: its memory was opened with pinned=False; "
                                     "open_host(pinned=True) pins")
        return _driver.device_address(self.address)

    def view(self) -> memoryview:
        """Its bytes in place. The view keeps the buffer."""
        return _memory.view(self.address, self._size, self, read_only=False)

    def __buffer__(self, flags: int) -> memoryview:
        return self.view()  # from Python 3.12 on

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self._size,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_dlpack.CPU, 0)  # few packages know the type of pinned memory

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule. Raises BufferError: a copy, or another device, was asked for."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a host buffer is given without a copy, as memory of the CPU")
        array = _dlpack.Strided(self.address, dtype_of("uint8"), (self._size,), (1,), self.__dlpack_device__(), self)
        return _dlpack.capsule_of(array, versioned=max_version is not None and max_version[0] >= 1, read_only=False)

    def free(self) -> None:
        """Frees it; again: nothing. No view is used any more, and no copy of a device is under way."""
        if not self._is_free:
            self._is_free = True
            self._memory._free(self._address, self._size)

    def __enter__(self) -> HostBuffer:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        leave(self.free, error)

    def __repr__(self) -> str:
        return f"<gpumem.HostBuffer of {self._size} bytes, " + ("freed>" if self._is_free else f"at {self._address:#x}>")

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        if is_finalizing() or getattr(self, "_is_free", True):
            return
        self._is_free = True
        self._memory._forget(self._address, self._size)


class HostMemory(Handle):
    """Buffers of the host store, charged to the tenant's host_limit. Freed memory serves the next buffer; what is not needed
    goes back to the broker: at once when it asks, else after the `idle` time. Opened by Session.open_host.

    A buffer is freed when no copy of a device uses it any more: frees are not in the order of streams.
    Threads  any.
    Fork     a child may not use its parent's.
    """

    def __init__(self, allocator: Allocator, *, pinned: bool):
        """Use Session.open_host."""
        self._allocator, self._is_pinned, self._owner = allocator, pinned, os.getpid()

    def check_not_forked(self) -> None:
        """Raises FailedPrecondition."""
        if os.getpid() != self._owner:
            raise FailedPrecondition("this memory is the parent process's, and a forked child does not have it: open host "
                                     "memory here")

    @property
    def is_pinned(self) -> bool:
        return self._is_pinned

    @property
    def limit(self) -> int:
        """Bytes that it may have."""
        return self._allocator.limit

    def buffer(self, size: SupportsIndex) -> HostBuffer:
        """A buffer of `size` bytes (not zero). Its content is undefined: zero, or what an earlier buffer of this process held.

        Raises OutOfMemory (with the broker's explanation; the process's cgroup has no room), InvalidArgument (zero),
        FailedPrecondition (the process has no CUDA context to pin in; closed; forked), Unavailable.
        """
        wanted = size_of(size, "size")
        return HostBuffer(self, self._allocator.allocate_address(wanted), wanted)

    def statistics(self) -> Statistics:
        """Figures of this moment."""
        return self._allocator.statistics()

    def trim(self, size: SupportsIndex | None = None) -> int:
        """Gives back at least `size` bytes (None: all there is), as far as wholly free extents add up to it. Answers how
        many. Raises Unavailable."""
        return self._allocator.trim(size)

    def close(self) -> None:
        """Gives everything back; again: nothing. Raises FailedPrecondition: buffers are in use, and nothing has changed."""
        self._allocator.close()

    def _free(self, address: int, size: int) -> None:
        self._allocator.deallocate(address, size)

    def _forget(self, address: int, size: int) -> None:
        self._allocator.forget_address(address, size)

    def __enter__(self) -> HostMemory:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        leave(self.close, error)
