"""cuda.core's buffers in memory of gpumem.

    resource = gpumem.cuda_core.MemoryResource(session.open_allocator())
    buffer = resource.allocate(1 << 20, stream=stream)      # a cuda.core.Buffer
"""
from __future__ import annotations

from cuda import core
from cuda.core import Buffer, Stream
from cuda.core.graph import GraphBuilder
from cuda.core.typing import DevicePointerType

from .allocator import Allocator


class MemoryResource(core.MemoryResource):
    """A cuda.core.MemoryResource over an allocator, which it keeps. Buffers may outlive it."""

    def __init__(self, allocator: Allocator):
        self._allocator = allocator

    @property
    def allocator(self) -> Allocator:
        return self._allocator

    def allocate(self, size: int, *, stream: Stream | GraphBuilder) -> Buffer:
        """A buffer of `size` bytes for work on `stream`, in whose order it is freed unless it is told another. Its
        content is undefined. Raises OutOfMemory, a MemoryError, with the broker's explanation; InvalidArgument."""
        address = self._allocator.allocate_address(size, stream) if size else 0
        try:
            return Buffer.from_handle(address, size, mr=self, stream=stream)
        except BaseException:
            if address:
                self._allocator.deallocate(address, size, stream)
            raise

    def deallocate(self, ptr: DevicePointerType, size: int, *, stream: Stream | GraphBuilder) -> None:
        """Called when a buffer is closed, or forgotten."""
        if ptr is not None and int(ptr):
            self._allocator.forget_address(int(ptr), size, stream)

    @property
    def is_device_accessible(self) -> bool:
        return True

    @property
    def is_host_accessible(self) -> bool:
        return False

    @property
    def is_managed(self) -> bool:
        return False

    @property
    def device_id(self) -> int:
        """This process's number of the device."""
        return self._allocator.ordinal
