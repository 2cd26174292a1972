"""A range of device addresses, backed as it grows."""
from __future__ import annotations

import builtins
import ctypes
import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import SupportsIndex

from . import _abi, _memory
from ._handle import Handle, Remainder
from ._library import check, check_waiting, leave, load, text
from ._values import encoded, size_of, wait_ms_of
from .errors import InvalidArgument
from .ipc import exported
from .region import Sharing, digest_bytes, publish_options


def _give_back(handle: int, owner: int) -> None:
    if os.getpid() == owner:
        load().gpumem_slice_close(handle)


class Slice(Handle):
    """Addresses [base, base + limit) of a device, or for memory of the host store, of which [base, base + committed) is
    memory. Opened by Session.open_slice.

    Use it as a context manager, or call close(). The caller has synchronised its work on what is given back, also
    when a slice is forgotten. One that is open when the interpreter ends goes with the process.
    Threads  any. Growths of one slice take turns.
    Fork     a child may not use its parent's slices: calls raise FailedPrecondition. Memory of the host store is there at its
             addresses all the same, and stays charged as long as the child lives.
    """

    def __init__(self, handle: int):
        self._handle, self._remainder = handle, Remainder(load().gpumem_slice_free, handle)
        self._finalizer = weakref.finalize(self, _give_back, handle, os.getpid())
        self._finalizer.atexit = False  # work on the device may still use it
        self._turns, self._owner = threading.RLock(), os.getpid()

    def grow(self, target: SupportsIndex, *, wait: float | None = None, least: SupportsIndex = 0) -> int:
        """Grows until `target` bytes are committed, rounded up to the granularity; what is new reads as zero.

        wait: seconds that it may wait for memory that others hold now; None: as long as the environment's GPUMEM_WAIT says,
        else not at all.
        least: bytes that are enough where the target cannot be had; 0: the target.
        Answers the committed bytes. Raises OutOfMemory (nothing has changed), InvalidArgument, Unavailable,
        GpumemError (CANCELLED: the slice was closed meanwhile, or a signal to end came).
        """
        options = _abi.sized(_abi.GrowOptions, wait_ms=wait_ms_of(wait), least=size_of(least, "least"))
        committed = ctypes.c_uint64()
        wanted = size_of(target, "target")
        check_waiting(options, lambda: load().gpumem_slice_grow(self._handle, wanted, ctypes.byref(options),
                                                                ctypes.byref(committed)), asks_for_memory=True)
        return committed.value

    def _turn(self) -> AbstractContextManager[object]:
        """Of a thread that grows the slice, fills what is new and publishes it. Nobody's in a child, to whom all calls are refused:
        a thread that it does not have may have had it."""
        return self._turns if os.getpid() == self._owner else nullcontext()

    def shrink(self, target: SupportsIndex) -> int:
        """Gives memory back, from the end on and in whole extents, as long as `target` bytes stay committed.
        Answers the committed bytes. Raises Unavailable: the memory is unmapped all the same."""
        committed = ctypes.c_uint64()
        check(load().gpumem_slice_shrink(self._handle, size_of(target, "target"), ctypes.byref(committed)))
        return committed.value

    def release(self, bytes: SupportsIndex, keep: SupportsIndex = 0) -> int:
        """Gives at least `bytes` back, as far as at least `keep` bytes stay committed. Answers how many. Raises as
        shrink."""
        released = ctypes.c_uint64()
        check(load().gpumem_slice_release(self._handle, size_of(bytes, "bytes"), size_of(keep, "keep"),
                                          ctypes.byref(released)))
        return released.value

    def set_in_use(self, bytes: SupportsIndex) -> bool:
        """Says how many bytes of the slice, from its base on, hold something. Answers whether all of them are
        committed. With trim_on_pressure, what lies beyond may vanish at any moment, and what lies below stays."""
        committed = ctypes.c_bool()
        check(load().gpumem_slice_set_in_use(self._handle, size_of(bytes, "bytes"), ctypes.byref(committed)))
        return committed.value

    def export_handle(self, offset: SupportsIndex = 0, bytes: SupportsIndex = 0, *, life: float = 60.0,
                      uses: SupportsIndex = 1) -> builtins.bytes:
        """A handle, 64 bytes, of [base + offset, base + offset + bytes), with which another session of the tenant maps
        that memory (Session.import_handle). It ends when it is used up or expires, and with any of the memory. The
        device's work on the memory is not waited for.

        bytes: 0 for all that is committed behind `offset`.
        life: seconds in which it can be redeemed; 24 hours at most.
        uses: how often it can be redeemed.
        Raises InvalidArgument (not committed), OutOfMemory (over 128 extents, over 1,024 handles), NotFound (given back
        meanwhile), Unavailable.
        """
        return exported(load().gpumem_slice_export, (self._handle,), offset, bytes, life, uses)

    def publish(self, name: str, offset: SupportsIndex = 0, bytes: SupportsIndex = 0, *,
                sharing: Sharing = Sharing.PRIVATE, readers: Sequence[str] = (), layout: SupportsIndex = 0,
                digest: builtins.bytes = b"", life: float | None = None, keep: bool = False,
                linger: float | None = None, seal: bool = False) -> int:
        """Names [base + offset, base + offset + bytes), whose content does not change any more, for other processes to
        map (Session.map_region). Answers its version, higher than that of every region before; earlier ones of the
        same name stay. The memory stays charged as it is. The region ends when it is removed or expires, and with
        any of its memory. The device's work on it is not waited for.

        bytes: 0 for all that is committed behind `offset`.
        sharing: who may map it besides this session's tenant; with Sharing.NAMED the tenants in `readers`, 8 at most.
        layout: so many of its last bytes say what is in it; the broker does not read them. digest: 32 bytes of a hash of
        them, for readers to compare.
        life: seconds; None: as long as its memory.
        keep: it outlives the processes that have its memory, at the tenant's expense. linger: it ends so many seconds
        after the last of them has left it; None: it does not.
        seal: nobody writes to it from now on. It is mapped for reading alone; the extents that it lies
        in are readable only here, too, with whatever else they hold, until they are given back.
        Raises InvalidArgument (not committed, the name, the layout, the readers), OutOfMemory (over 128 extents, over
        16,384 regions of the tenant), NotFound (given back meanwhile), FailedPrecondition (sealed memory
        as a region that is not, or the other way round; to be sealed, memory that others have imported by handles),
        Unavailable.
        """
        options = publish_options(sharing, readers, life, keep, linger, layout=size_of(layout, "layout"),
                                  digest=digest_bytes(digest), sealed=bool(seal))
        version = ctypes.c_uint64()
        check(load().gpumem_slice_publish(self._handle, encoded(name, "name"), size_of(offset, "offset"),
                                          size_of(bytes, "bytes"), ctypes.byref(options), ctypes.byref(version)))
        return int(version.value)

    def view(self, offset: SupportsIndex = 0, bytes: SupportsIndex = 0) -> memoryview:
        """The bytes of [base + offset, base + offset + bytes) in place. The view keeps the slice; none is used once that memory
        was given back.

        bytes: 0 for all that is committed behind `offset`.
        Raises InvalidArgument (not committed), BufferError (a GPU's memory).
        """
        start, committed = size_of(offset, "offset"), self.committed
        size = size_of(bytes, "bytes") or max(0, committed - start)
        if start + size > committed:
            raise InvalidArgument(f"{size} bytes from {start} on are not committed: {committed} are")
        if not _memory.is_host_memory(self.ordinal):
            raise BufferError("this slice is in a GPU's memory")
        return _memory.view(self.base + start, size, self, read_only=False)

    @property
    def base(self) -> int:
        """The first address; never changes. A CUdeviceptr in value, or, of the host store, an address of this process."""
        return int(load().gpumem_slice_base(self._handle))

    @property
    def committed(self) -> int:
        """Bytes now; 0 when closed, and in a forked child."""
        return int(load().gpumem_slice_committed(self._handle))

    @property
    def limit(self) -> int:
        """Bytes of addresses."""
        return int(load().gpumem_slice_limit(self._handle))

    @property
    def granularity(self) -> int:
        """Bytes; sizes are rounded up to multiples of it."""
        return int(load().gpumem_slice_granularity(self._handle))

    @property
    def device(self) -> str:
        """The UUID, or "host"."""
        return text(load().gpumem_slice_device(self._handle))

    @property
    def ordinal(self) -> int:
        """This process's number of the device; -1: the host store."""
        return int(load().gpumem_slice_ordinal(self._handle))

    def close(self) -> None:
        """Gives the memory and the addresses back; a growth that waits is called off. Again: nothing."""
        if self._finalizer.detach():
            check(load().gpumem_slice_close(self._handle))

    def __enter__(self) -> Slice:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        leave(self.close, error)
