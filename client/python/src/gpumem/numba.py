"""numba-cuda's device arrays in memory of gpumem: an External Memory Manager.

By the environment, for any program: NUMBA_CUDA_MEMORY_MANAGER=gpumem.numba. Or at a program's beginning:

    import gpumem.numba
    gpumem.numba.enable(limit=4 * gpumem.GIB)
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NoReturn

from cuda.bindings import driver
from numba import cuda
from numba.cuda.cudadrv.driver import driver as numba_driver

from .allocator import Allocator
from .errors import FailedPrecondition, OutOfMemory
from .session import DeviceUsage, Session


class GpumemMemoryManager(cuda.HostOnlyCUDAMemoryManager):
    """Takes the device memory of one context from an allocator of gpumem, opened when it is first needed.

    Numba does not say on which streams an array was used. So an array that goes waits, as in Numba's own manager, in
    context.deallocations; when that is cleared the context is synchronised, once for all that wait, and they are
    freed. Pinned, mapped and managed memory are Numba's own.
    """

    session: Session | None = None  # of the process `connected_in`, for all contexts
    connected_in: int = 0
    options: dict[str, Any] = {"label": "numba"}  # of Session.open_allocator

    def __init__(self, *arguments: Any, **words: Any):
        super().__init__(*arguments, **words)
        self._allocator: Allocator | None = None
        self._sizes: dict[int, int] = {}  # of the blocks in use, by address
        self._gone = 0  # arrays so far
        self._synchronised = 0  # and how many of them the device is done with

    @property
    def interface_version(self) -> int:
        return 1

    def initialize(self) -> None:
        """Nothing yet: a context that allocates nothing needs no broker."""

    @property
    def allocator(self) -> Allocator:
        """Of the context's device. Raises as Session.connect and Session.open_allocator."""
        if self._allocator is None:
            self._allocator = self._connected().open_allocator(device=self.context.device.uuid, **self.options)
            self.deallocations.memory_capacity = self._most()
        return self._allocator

    def memalloc(self, size: int) -> Any:
        """A numba.cuda.MemoryPointer. Raises OutOfMemory, a MemoryError, with the broker's explanation."""
        address = self._allocate(size) if size else 0
        if not address:
            return cuda.MemoryPointer(self.context, driver.CUdeviceptr(0), 0)
        self._sizes[address] = size
        return cuda.MemoryPointer(self.context, driver.CUdeviceptr(address), size, finalizer=lambda: self._forget(address))

    def get_memory_info(self) -> Any:
        """(free, total): bytes that could be had without waiting, and the limit: the allocator's or the tenant's."""
        figures = self.allocator.statistics()
        usage = self._usage()
        unused = figures.committed - figures.in_use
        free = min(unused + usage.available, self.allocator.limit - figures.in_use)
        return cuda.MemoryInfo(free=max(free, 0), total=self._most())

    def get_ipc_handle(self, memory: Any) -> NoReturn:
        raise NotImplementedError(
            "memory of gpumem has no CUDA IPC handle: another process cannot open it. Share arrays through "
            "multiprocessing.shared_memory, or run the program that shares them with Numba's own memory manager "
            "(NUMBA_CUDA_MEMORY_MANAGER=default)")

    def reset(self) -> None:
        """Frees everything of the context, and gives it back."""
        for address in list(self._sizes):
            self._forget(address)
        super().reset()
        if self._allocator is not None:
            with contextlib.suppress(FailedPrecondition):  # forked
                self._allocator.close()
            self._allocator = None

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """While it is active nothing is freed, so nothing waits for the device."""
        with super().defer_cleanup():
            yield

    def _allocate(self, size: int) -> int:
        try:
            return self.allocator.allocate_address(size)
        except OutOfMemory:
            if not len(self.deallocations):
                raise
        self.deallocations.clear()
        return self.allocator.allocate_address(size)

    def _forget(self, address: int) -> None:
        size = self._sizes.pop(address, None)
        if size is not None:
            self._gone += 1
            self.deallocations.add_item(self._free, (address, size, self._gone), size)

    def _free(self, gone: tuple[int, int, int]) -> None:
        address, size, number = gone
        if number > self._synchronised:
            newest = self._gone
            self._synchronise()
            self._synchronised = newest
        if self._allocator is not None:
            self._allocator.forget_address(address, size)

    def _usage(self) -> DeviceUsage:
        return next(usage for usage in self._connected().usage() if usage.device == self.allocator.device)

    def _most(self) -> int:
        """Bytes that there may be: the allocator's limit, or the tenant's as it is now."""
        return min(self.allocator.limit, self._usage().limit)

    @staticmethod
    def _connected() -> Session:
        """A forked child may not use its parent's, and connects itself."""
        kind = GpumemMemoryManager
        if kind.session is None or kind.connected_in != os.getpid():
            kind.session, kind.connected_in = Session.connect(label="numba"), os.getpid()
        return kind.session

    def _synchronise(self) -> None:
        """Waits for all work in the context, which may be no thread's current one, or gone."""
        if driver.cuCtxPushCurrent(self.context.handle)[0] == driver.CUresult.CUDA_SUCCESS:
            driver.cuCtxSynchronize()
            driver.cuCtxPopCurrent()


def enable(session: Session | None = None, **options: Any) -> None:
    """Has Numba use it from now on; at the program's beginning, before Numba has a context.

    session: to open allocators with; None: one that is connected when it is first needed. A forked child does not use its
    parent's: it connects its own to the broker of its environment.
    options: of Session.open_allocator, but the device: each context has its own.
    Raises FailedPrecondition: Numba has a context already.
    """
    if "device" in options:
        raise TypeError("each context has its own device: `device` cannot be chosen")
    if numba_driver.is_initialized and any(gpu.primary_context is not None for gpu in cuda.gpus):
        raise FailedPrecondition("Numba has a context already, whose memory is not gpumem's; call "
                                 "gpumem.numba.enable() at the program's beginning")
    GpumemMemoryManager.session, GpumemMemoryManager.connected_in = session, os.getpid()
    GpumemMemoryManager.options = {"label": "numba"} | options
    cuda.set_memory_manager(GpumemMemoryManager)


_numba_memory_manager = GpumemMemoryManager
