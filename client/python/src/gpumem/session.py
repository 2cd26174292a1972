"""This process's connection to the broker, which knows from the kernel who it is."""
from __future__ import annotations

import builtins
import ctypes
import dataclasses
import os
import weakref
from collections.abc import Sequence
from typing import Any, SupportsIndex

from . import _abi
from ._handle import Handle, Remainder
from ._library import check, check_waiting, leave, load, text, visit
from ._values import encoded, milliseconds_of, size_of, wait_ms_of
from .allocator import Allocator
from .errors import InvalidArgument
from .host import HostMemory
from .ipc import Import
from .pressure import Handler, Listener
from .region import Region, Reservation, waited_in_vain_as_not_found
from .slice import Slice


@dataclasses.dataclass(frozen=True)
class DeviceUsage:
    """The broker's figures of a device, from the side of the session's job if it is in one, else of its tenant. Bytes."""

    device: str  # UUID
    pool: int
    free: int  # charged to nobody
    guarantee: int
    limit: int
    charged: int  # to the tenant or job, all its sessions together
    available: int  # for the tenant or job without waiting, if nobody else waits
    pressure: int  # what the broker asks this session to give back
    pressure_deadline: float  # seconds from now; 0 without pressure, or when it is over


def _usage(shown: Any) -> DeviceUsage:
    return DeviceUsage(text(shown.device), shown.pool, shown.free, shown.guarantee, shown.limit, shown.charged,
                       shown.available, shown.pressure, shown.pressure_deadline_ms / 1000)


def _end(handle: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child leaves its parent's session alone
        load().gpumem_session_close(handle)
        Listener.forget(handle)


class Session(Handle):
    """A session with the broker: open slices and allocators with it. They go on without it until they are closed. It joins
    the job of the environment's GPUMEM_JOB. If that is not there, a line on standard error says so.

    Use it as a context manager, or call close(). One that is forgotten, or still open when the interpreter ends, is
    closed then.
    Threads  any.
    Fork     a child may not use its parent's session: calls raise FailedPrecondition. It may connect itself.
             Memory needs the driver, which works in no child of a process that has started it (multiprocessing:
             "spawn").
    """

    def __init__(self, handle: int, *, shared: bool = False):
        """Use Session.connect, or gpumem.default_session. `shared`: of the process, never closed."""
        self._handle = handle
        self._finalizer = weakref.finalize(self, _end, handle, os.getpid()) if not shared else None

    @classmethod
    def connect(cls, *, runtime_folder: str | None = None, label: str | None = None, timeout: float = 1.0) -> Session:
        """Connects to the broker.

        runtime_folder: of its sockets; None: the environment's GPUMEM_RUNTIME_DIR, else /run/gpumemd.
        label: for people, shown by `gpumem ps`; at most 128 bytes; None: the environment's GPUMEM_NAME.
        timeout: seconds, of connecting and of each call, after its wait for memory.
        Raises Unavailable (no broker there, or it does not answer), PermissionDenied, FailedPrecondition (another
        version), InvalidArgument, LibraryNotFound.
        """
        options = _abi.sized(_abi.SessionOptions, runtime_folder=encoded(runtime_folder, "runtime_folder"),
                             label=encoded(label, "label"), timeout_ms=milliseconds_of(timeout, "timeout"))
        handle = _abi.Handle()
        check(load().gpumem_session_connect(ctypes.byref(options), ctypes.byref(handle)))
        return cls(handle.value or 0)

    def open_slice(self, *, device: str | None = None, limit: SupportsIndex = 0, label: str | None = None,
                   trim_on_pressure: bool = False, pinned: bool = False) -> Slice:
        """A range of device addresses that grows and shrinks.

        device: UUID, or "gpu0" by its place in `gpumem status`. "host": the host store, whose memory is at addresses of this
            process and needs no driver.
            None: the first device that both the broker and this process see.
        limit: bytes; 0: none but the tenant's, as it is at any time.
        trim_on_pressure: what lies beyond Slice.set_in_use goes back without asking.
        pinned: of the host store, for all devices of the process, which must have a CUDA context.
        Raises NotFound (no driver, no such device), InvalidArgument, OutOfMemory (no addresses, too many slices),
        FailedPrecondition, Unavailable.
        """
        options = _abi.sized(_abi.SliceOptions, device=encoded(device, "device"), limit=size_of(limit, "limit"),
                             label=encoded(label, "label"), trim_on_pressure=bool(trim_on_pressure),
                             pinned=bool(pinned))
        handle = _abi.Handle()
        check(load().gpumem_slice_open(self._handle, ctypes.byref(options), ctypes.byref(handle)))
        return Slice(handle.value or 0)

    def open_allocator(self, *, device: str | None = None, limit: SupportsIndex = 0, label: str | None = None,
                       wait: float | None = None, idle: float = 2.0) -> Allocator:
        """Blocks of any size of a device's memory, in the order of streams.

        wait: seconds that an allocation may wait for memory, as in Slice.grow.
        idle: seconds after which what nobody needed goes back to the broker; 0: at once.
        The rest, and what it raises, as open_slice.
        """
        options = allocator_options(device=device, limit=limit, label=label, wait=wait, idle=idle)
        handle = _abi.Handle()
        check(load().gpumem_allocator_open(self._handle, ctypes.byref(options), ctypes.byref(handle)))
        return Allocator(handle.value or 0)

    def open_host(self, *, limit: SupportsIndex = 0, label: str | None = None, wait: float | None = None,
                  idle: float = 2.0, pinned: bool = True) -> HostMemory:
        """Buffers of the machine's memory, from the broker's host store.

        limit: bytes; 0: none but the tenant's host_limit.
        pinned: for all devices of the process, which must have a CUDA context by its first buffer. False: the memory is
            not pinned, and the process needs no driver. Where the driver allocates the store (kind = "driver"), it is always
            pinned, needs no context, and goes back when it is closed, not when it is idle.
        wait, idle: as open_allocator.
        Raises NotFound (the broker has no host store; pinned, and no driver), OutOfMemory (no addresses), InvalidArgument
        (pinned=False, and the driver allocates the store), FailedPrecondition, Unavailable.
        """
        options = allocator_options(device="host", limit=limit, label=label, wait=wait, idle=idle)
        options.pageable = not pinned
        handle = _abi.Handle()
        check(load().gpumem_allocator_open(self._handle, ctypes.byref(options), ctypes.byref(handle)))
        return HostMemory(Allocator(handle.value or 0), pinned=pinned)

    def import_handle(self, handle: bytes) -> Import:
        """Maps the memory that `handle` names: 64 bytes that another session of the tenant made (Slice.export_handle).
        Raises NotFound (expired, used up, given back, or another tenant's; a device that this process does not see),
        InvalidArgument (no handle of gpumem's), Unavailable (the memory is being asked back), OutOfMemory (over 1,024
        imports, no descriptors), PermissionDenied (the broker could not end this process), FailedPrecondition.
        """
        if len(handle) != ctypes.sizeof(_abi.IpcHandle):
            raise InvalidArgument(f"a handle has 64 bytes, not {len(handle)}")
        opened = _abi.Handle()
        check(load().gpumem_import_handle(self._handle, ctypes.byref(_abi.IpcHandle.from_buffer_copy(handle)),
                                          ctypes.byref(opened)))
        return Import(opened.value or 0)

    def map_region(self, name: str, *, owner: str = "", version: SupportsIndex = 0, writable: bool = False,
                   wait: float = 0.0, adopt: bool = False, device: str | None = None,
                   access: Sequence[str] = (), newer_than: SupportsIndex = 0, pinned: bool = False) -> Region:
        """Maps a region (Slice.publish) for reading.

        owner: the tenant that has published it; empty: this session's.
        version: 0 for the newest.
        writable: also for writing, for processes of its tenant that work together: others see what is written.
        wait: seconds that it may wait for the newest version to be published.
        adopt: a kept region that no process has any more is this session's from now on; it lives as long as its memory.
        device: UUID, or "host"; of those regions of the name whose memory is of this device (gpumem.publish_replicas).
        access: UUIDs of other devices that use the memory, too, from peer to peer.
        newer_than: with version 0, a newer version than this; 0: any.
        pinned: of memory of the host store, for all devices of the process, which must have a CUDA context; as far as the
            driver allows (Region.is_pinned).
        Raises NotFound (a device that this process does not see; none that is shared with this session's tenant, none that
        is newer, or none after `wait`), InvalidArgument (version and newer_than), OutOfMemory (this session waits for 64),
        PermissionDenied (adopts another tenant's, or maps it writable), FailedPrecondition (adopts one that is not kept, or
        that a process has; a device in `access` that cannot access the region's), others as import_handle.
        """
        peers = (ctypes.c_char_p * max(1, len(access)))(*(encoded(peer, "a device") for peer in access))
        options = _abi.sized(_abi.RegionOptions, device=encoded(device, "device"), access=peers, access_count=len(access),
                             owner=encoded(owner, "owner"), version=size_of(version, "version"),
                             newer_than=size_of(newer_than, "newer_than"), writable=writable, adopt=bool(adopt), pinned=bool(pinned),
                             wait_ms=milliseconds_of(wait, "wait"))
        opened = _abi.Handle()
        try:
            with waited_in_vain_as_not_found():
                check_waiting(options, lambda: load().gpumem_map_region(
                    self._handle, encoded(name, "name"), ctypes.byref(options), ctypes.byref(opened)))
            remainder = Remainder(load().gpumem_import_free, opened.value or 0)  # the handle stays for the lines below
            return Region(opened.value or 0, self, name, writable=writable, remainder=remainder)
        except BaseException:  # an interrupt may come after the answer
            if opened.value:
                load().gpumem_import_close(opened)
            raise

    def map_or_reserve(self, name: str, *, writable: bool = False, wait: float = 0.0,
                       life: float | None = None) -> Region | Reservation:
        """Maps the newest region of this session's tenant with this name, or makes this session the one to publish it:
        if there is no such region, and nobody else has reserved the name, this answers a Reservation.

        wait: seconds for what another process has reserved. If that ends without a region, one of those who wait is next.
        life: seconds after which the reservation ends, 7 days at most; None: 10 minutes.
        A process that publishes the name without a reservation is not refused.
        Raises NotFound (another process has reserved it, and not published it within `wait`), OutOfMemory (this session
        waits for 64, or has reserved 64), others as map_region.
        """
        options = _abi.sized(_abi.ReserveOptions, writable=writable, wait_ms=milliseconds_of(wait, "wait"),
                             life_ms=0 if life is None else max(1, milliseconds_of(life, "life")))
        opened, number = _abi.Handle(), ctypes.c_uint64()
        try:
            with waited_in_vain_as_not_found():
                check_waiting(options, lambda: load().gpumem_map_or_reserve(
                    self._handle, encoded(name, "name"), ctypes.byref(options), ctypes.byref(opened), ctypes.byref(number)))
            if not opened.value:
                return Reservation(self, name, number.value)
            remainder = Remainder(load().gpumem_import_free, opened.value)
            return Region(opened.value, self, name, writable=writable, remainder=remainder)
        except BaseException:  # an interrupt may come after the answer
            if opened.value:
                load().gpumem_import_close(opened)
            if number.value:
                load().gpumem_release_reservation(self._handle, number.value)
            raise

    def remove_region(self, name: str, *, version: SupportsIndex = 0) -> None:
        """Ends a region of this session's tenant: it cannot be mapped any more. Existing mappings stay.

        version: 0 for the newest.
        Raises NotFound, Unavailable.
        """
        check(load().gpumem_remove_region(self._handle, encoded(name, "name"), size_of(version, "version")))

    def usage(self) -> list[DeviceUsage]:
        """Figures of every device that the broker lends, read from shared memory. Raises Unavailable."""
        found: list[DeviceUsage] = visit(load().gpumem_session_usage, self._handle, _abi.UsageVisitor, _usage)
        return found

    def on_pressure(self, handler: Handler | None) -> None:
        """Has `handler` called when the broker asks for memory that is not had without it, in place of the one
        before; None: no more. It gives memory back (Slice.release, freeing blocks) and answers how many bytes it
        expects to have given. It runs in a thread of the library's own, one call at a time; what it raises is printed
        on standard error. The handler before has returned when this does, unless it is what calls this.
        """
        Listener.of(self._handle).use(handler)

    def charge(self, device: str, bytes: SupportsIndex) -> None:
        """Declares what this process holds of `device` (a UUID) past the broker, in all: charged to its tenant.
        Raises NotFound, InvalidArgument (more than the device has), Unavailable."""
        check(load().gpumem_session_charge(self._handle, encoded(device, "device"), size_of(bytes, "bytes")))

    def ping(self) -> None:
        """One empty call to the broker. Raises Unavailable (it is gone), GpumemError (it has ended the session)."""
        check(load().gpumem_session_ping(self._handle))

    @property
    def id(self) -> int:
        """The broker's number of the session."""
        return int(load().gpumem_session_id(self._handle))

    @property
    def job(self) -> int:
        """The job that the session is in: `gpumem run`'s. 0: none."""
        return int(load().gpumem_session_job(self._handle))

    @property
    def tenant(self) -> str:
        """The tenant that is charged."""
        return text(load().gpumem_session_tenant(self._handle))

    def close(self) -> None:
        """Ends the session, and removes its handler; again: nothing. Its slices and allocators go on."""
        if self._finalizer is None:
            check(load().gpumem_session_close(self._handle))  # the process's own says that it is never closed
        elif self._finalizer.detach():
            check(load().gpumem_session_close(self._handle))
            Listener.forget(self._handle)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        leave(self.close, error)


def allocator_options(*, device: str | None = None, limit: SupportsIndex = 0, label: str | None = None,
                      wait: float | None = None, idle: float = 2.0) -> _abi.AllocatorOptions:
    """For C, from Session.open_allocator's words."""
    idle_ms = milliseconds_of(idle, "idle") or _abi.AT_ONCE
    return _abi.sized(_abi.AllocatorOptions, device=encoded(device, "device"), limit=size_of(limit, "limit"),
                      label=encoded(label, "label"), wait_ms=wait_ms_of(wait), idle_ms=idle_ms)
