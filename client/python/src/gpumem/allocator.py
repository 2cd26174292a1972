"""Blocks of any size of one device's memory, in the order of streams."""
from __future__ import annotations

import ctypes
import dataclasses
import os
import weakref
from typing import Any, SupportsIndex

from . import _abi
from ._handle import Handle
from ._library import check, failure, leave, load, text, visit
from ._values import StreamLike, encoded, handle_of, size_of
from .block import Block
from .errors import Code
from .ipc import exported


@dataclasses.dataclass(frozen=True)
class SizeClass:
    """What happened in one size class."""

    size: int  # bytes: the largest that may be asked for in it; in the last, all larger blocks as one
    in_use: int  # blocks
    allocations: int  # since the beginning
    cache_hits: int  # of them, served from the calling thread's cache


@dataclasses.dataclass(frozen=True)
class Statistics:
    """An allocator's figures: bytes, and counts since the beginning."""

    in_use: int  # asked for and not freed
    placed: int  # what the blocks in use take, their rounding included
    cached: int  # free, in the caches of threads
    committed: int  # lent by the broker
    returnable: int  # of `committed`: in wholly free extents
    reserved: int  # addresses
    peak_in_use: int  # the most that blocks took, rounding and caches included
    peak_committed: int
    fragmentation: float  # of `committed`, 0 to 1: neither placed, nor cached, nor returnable
    allocations: int
    cache_hits: int  # of them, served from the calling thread's cache
    growths: int  # requests to the broker that were granted
    refused: int  # and those that were not
    moved_extents: int  # mapped under another address, to make room
    given_back: int  # extents


@dataclasses.dataclass(frozen=True)
class BlockInfo:
    """A block in use."""

    address: int
    bytes: int  # as asked for
    placed: int  # as it takes
    stream: int  # it was allocated on
    age: float  # seconds, to within one
    tag: str  # "": none


def _block_info(shown: Any) -> BlockInfo:
    return BlockInfo(shown.address, shown.bytes, shown.placed, shown.stream or 0, shown.age_ms / 1000, text(shown.tag))


def _size_class(shown: Any) -> SizeClass:
    return SizeClass(shown.size, shown.in_use, shown.allocations, shown.cache_hits)


def _close(handle: int, owner: int) -> None:
    if os.getpid() == owner:
        load().gpumem_allocator_close(handle)  # where blocks are in use it stays, and goes with the process


class Allocator(Handle):
    """Memory of one device in blocks of any size. A block that was freed on a stream serves that stream again at
    once, and another one only after the work given to the first so far; nothing waits for the device as a whole.
    Opened by Session.open_allocator, or by gpumem.default_allocator.

    Unused memory goes back to the broker: at once when it asks, else after the `idle` time. Use it as a context
    manager, or call close(). One that is forgotten is closed when none of its blocks is in use; one that is open when
    the interpreter ends goes with the process.
    Streams  a CUstream's value, any framework's stream object, or None for the legacy default stream; up to 4,095 with
             blocks or unfinished work at a time. A stream may be destroyed as soon as the call that names it returns.
    Threads  any; a block may be freed by another thread than allocated it. Calls release the GIL.
    Fork     a child may not use its parent's allocators: calls raise FailedPrecondition.
    """

    def __init__(self, handle: int, *, shared: bool = False):
        """Use Session.open_allocator, or gpumem.default_allocator. `shared`: of the process, never closed."""
        self._handle = handle
        self._library = load()
        self._tags: dict[str, int] = {}
        self._finalizer = weakref.finalize(self, _close, handle, os.getpid()) if not shared else None
        if self._finalizer:
            self._finalizer.atexit = False  # work on the device may still use its blocks

    def allocate(self, size: SupportsIndex, stream: StreamLike = None, *, tag: str | None = None,
                 room: SupportsIndex = 0) -> Block:
        """A block of `size` bytes, for work on `stream` and what is ordered behind it; its content is undefined.

        tag: a name for the block in snapshots; at most 63 bytes, at most 255 names.
        room: bytes of addresses, not memory, kept behind the block for Block.extend.
        Raises OutOfMemory (with the broker's explanation, after everything that is cached here was tried; more than
        the limit; too many streams), InvalidArgument (zero), Unavailable (the broker is gone), FailedPrecondition (closed,
        forked), GpumemError (CANCELLED: a signal to end came while this waited).
        """
        wanted, on = size_of(size, "size"), handle_of(stream)
        return Block(self, self._take(wanted, on, tag, room), wanted, stream, on)

    def allocate_address(self, size: SupportsIndex, stream: StreamLike = None, *, tag: str | None = None,
                         room: SupportsIndex = 0) -> int:
        """As allocate, but answers the bare address, which the caller passes to deallocate."""
        return self._take(size_of(size, "size"), handle_of(stream), tag, room)

    def _take(self, size: int, stream: int, tag: str | None, room: SupportsIndex) -> int:
        address = ctypes.c_uint64()
        if tag is None and not room:
            status = self._library.gpumem_allocate(self._handle, size, stream, ctypes.byref(address))
        else:
            placement = _abi.sized(_abi.Placement, tag=self._tag(tag), room=size_of(room, "room"))
            status = self._library.gpumem_allocate_placed(self._handle, size, stream, ctypes.byref(placement),
                                                          ctypes.byref(address))
        if status:
            raise failure(status, asks_for_memory=True)
        return address.value

    def deallocate(self, address: SupportsIndex, size: SupportsIndex | None = None, stream: StreamLike = None) -> None:
        """Frees the block at `address`, in the order of `stream`: work given to it so far may still use the block.

        size: bytes, as it was allocated or last extended; None: unknown.
        Raises InvalidArgument: no block begins there, it was freed already, or it has another size. OutOfMemory: it
        is one stream too many.
        """
        bytes = _abi.UNKNOWN_SIZE if size is None else size_of(size, "size")
        check(self._library.gpumem_deallocate(self._handle, size_of(address, "address"), bytes, handle_of(stream)))

    def extend_address(self, address: SupportsIndex, size: SupportsIndex, to: SupportsIndex,
                       stream: StreamLike = None) -> None:
        """As Block.extend, of the block of `size` bytes at `address`, to `to` bytes."""
        status = self._library.gpumem_extend(self._handle, size_of(address, "address"), size_of(size, "size"),
                                             size_of(to, "to"), handle_of(stream))
        if status:
            raise failure(status, asks_for_memory=True)

    def export_address(self, address: SupportsIndex, offset: SupportsIndex = 0, size: SupportsIndex = 0, *,
                       life: float = 60.0, uses: SupportsIndex = 1) -> bytes:
        """As Block.export_handle, of the block at `address`. Raises InvalidArgument: no block begins there, too."""
        return exported(self._library.gpumem_allocator_export, (self._handle, size_of(address, "address")), offset, size,
                        life, uses)

    def forget_address(self, address: int, size: int, stream: StreamLike = None) -> None:
        """As deallocate; an allocator that is gone already, or a parent process's, is nothing to free."""
        status = self._library.gpumem_deallocate(self._handle, address, size, handle_of(stream))
        if status not in (Code.OK, Code.FAILED_PRECONDITION):
            raise failure(status)

    def record_stream(self, address: SupportsIndex, stream: StreamLike) -> None:
        """As Block.record_stream, of the block at `address`."""
        check(self._library.gpumem_record_stream(self._handle, size_of(address, "address"), handle_of(stream)))

    def release_stream(self, stream: StreamLike) -> None:
        """Forgets `stream`, which is about to be destroyed: needed only with drivers before CUDA 12.0. Raises
        GpumemError: something was freed on it while it was captured into a graph, and it is not forgotten."""
        check(self._library.gpumem_release_stream(self._handle, handle_of(stream)))

    def synchronize(self, stream: StreamLike = None) -> None:
        """Returns when the work given to `stream` so far is done: before a block is used on streams that nothing
        orders behind the one it was allocated on. None: all blocking streams of the context. Raises
        FailedPrecondition: a graph is being captured."""
        check(self._library.gpumem_synchronize(self._handle, handle_of(stream)))

    def trim(self, size: SupportsIndex | None = None) -> int:
        """Gives back at least `size` bytes (None: all there is), as far as wholly free extents add up to it. Waits
        for work on the device that still uses them. Answers how many. Raises Unavailable."""
        given = ctypes.c_uint64()
        bytes = _abi.UNKNOWN_SIZE if size is None else size_of(size, "size")
        check(self._library.gpumem_allocator_trim(self._handle, bytes, ctypes.byref(given)))
        return given.value

    def statistics(self) -> Statistics:
        """Figures of this moment."""
        found = _abi.sized(_abi.Statistics)
        check(self._library.gpumem_allocator_statistics(self._handle, ctypes.byref(found)))
        return Statistics(**{field.name: getattr(found, field.name) for field in dataclasses.fields(Statistics)})

    def reset_peaks(self) -> None:
        """Counts the peaks of statistics() anew, from what is there now."""
        check(self._library.gpumem_allocator_reset_peaks(self._handle))

    def size_classes(self) -> list[SizeClass]:
        """The size classes that were ever used, by size."""
        found: list[SizeClass] = visit(self._library.gpumem_allocator_size_classes, self._handle,
                                       _abi.SizeClassVisitor, _size_class)
        return found

    def snapshot(self) -> list[BlockInfo]:
        """Every block that is in use at this moment, by address."""
        found: list[BlockInfo] = visit(self._library.gpumem_allocator_snapshot, self._handle, _abi.BlockVisitor,
                                       _block_info)
        return found

    @property
    def limit(self) -> int:
        """Bytes that it may have of the device: what it was opened with. Without a limit of its own, what the device can
        lend, of which its tenant's limit, as it is at any time (Session.usage), allows so much."""
        return int(self._library.gpumem_allocator_limit(self._handle))

    @property
    def granularity(self) -> int:
        """Bytes; sizes of extents are multiples of it."""
        return int(self._library.gpumem_allocator_granularity(self._handle))

    @property
    def device(self) -> str:
        """The UUID."""
        return text(self._library.gpumem_allocator_device(self._handle))

    @property
    def ordinal(self) -> int:
        """This process's number of the device: the one that frameworks count by."""
        return int(self._library.gpumem_allocator_ordinal(self._handle))

    @property
    def handle(self) -> int:
        """The gpumem_allocator*, for C functions."""
        return self._handle

    def close(self) -> None:
        """Gives everything back, after the work on the blocks that were freed; again: nothing. Raises
        FailedPrecondition: so many blocks are in use, and nothing has changed; or it is the process's own."""
        if self._finalizer is None or self._finalizer.alive:
            check(self._library.gpumem_allocator_close(self._handle))
            self._let_go()

    def destroy(self) -> None:
        """Frees all blocks in use, each in the order of its stream, and closes. The caller has synchronised its work
        on them, or given it to those streams, and nobody uses them any more."""
        if self._finalizer is None or self._finalizer.alive:
            check(self._library.gpumem_allocator_destroy(self._handle))
            self._let_go()

    def _let_go(self) -> None:
        if self._finalizer:
            self._finalizer.detach()

    def _tag(self, name: str | None) -> int:
        if name is None:
            return 0
        if name not in self._tags:
            number = ctypes.c_uint8()
            check(self._library.gpumem_tag(self._handle, encoded(name, "tag"), ctypes.byref(number)))
            self._tags[name] = number.value
        return self._tags[name]

    def __enter__(self) -> Allocator:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Closes. After an exception, blocks in use are no second one: it then stays until they are gone."""
        leave(self.close, error)
