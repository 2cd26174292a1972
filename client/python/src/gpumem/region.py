"""Regions: named memory that one process publishes and others map, of other tenants too."""
from __future__ import annotations

import builtins
import contextlib
import ctypes
import enum
import functools
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _abi, _memory
from ._handle import Handle, Remainder
from ._library import check, leave, load
from ._values import encoded, milliseconds_of
from .arrays import Array, Arrays, Held, private_names
from .errors import Code, FailedPrecondition, InvalidArgument, NotFound, StaleLayout, Unavailable
from .ipc import Import
from .layout import MOST_BYTES, ArrayLayout, Layout, aligned

if TYPE_CHECKING:
    from .session import Session

DIGEST_BYTES = 32


@contextlib.contextmanager
def waited_in_vain_as_not_found() -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        if error.code is Code.DEADLINE_EXCEEDED:
            raise NotFound(str(error), error.code) from None
        raise


class Sharing(enum.IntEnum):
    """The tenants that may map a region, besides its publisher."""

    PRIVATE = 0
    """Nobody."""
    GROUP = 1
    """All tenants within the publisher's parent tenant."""
    PUBLIC = 2
    """Everybody who may connect to the broker."""
    NAMED = 3
    """The named tenants, and all tenants within them."""


def digest_bytes(digest: builtins.bytes) -> Any:
    """For C. b"": none."""
    if len(digest) not in (0, DIGEST_BYTES):
        raise InvalidArgument(f"a digest has {DIGEST_BYTES} bytes, not {len(digest)}")
    return (ctypes.c_uint8 * DIGEST_BYTES)(*digest)


def publish_options(sharing: Sharing, readers: Sequence[str], life: float | None, keep: bool, linger: float | None,
                    **members: Any) -> _abi.PublishOptions:
    """For C, from Slice.publish's words. It refers to what it keeps alive."""
    names = (ctypes.c_char_p * max(1, len(readers)))(*(encoded(reader, "a reader") for reader in readers))
    return _abi.sized(_abi.PublishOptions, sharing=int(sharing), readers=names, reader_count=len(readers),
                      life_ms=0 if life is None else milliseconds_of(life, "life"), keep=bool(keep),
                      linger_ms=0 if linger is None else max(1, milliseconds_of(linger, "linger")), **members)


def _let_go(session: Session, number: int, process: int) -> None:
    if os.getpid() == process:
        load().gpumem_release_reservation(session._handle, number)


class Reservation(Handle):
    """A name that is this session's to publish. Made by Session.map_or_reserve.

    Publishing the name by the same session fulfils it. As a context manager it is released at the end of the statement,
    unless it was fulfilled; and so is one that nobody refers to any more.
    """

    def __init__(self, session: Session, name: str, number: int):
        """Use Session.map_or_reserve."""
        self._session, self._name, self._number = session, name, number
        self._finalizer = weakref.finalize(self, _let_go, session, number, os.getpid())
        self._finalizer.atexit = False  # it ends with the session

    @property
    def name(self) -> str:
        return self._name

    def _fulfilled(self) -> None:
        self._finalizer.detach()

    def release(self) -> None:
        """Lets another process have it. Nothing, if it was fulfilled or has ended. Raises Unavailable."""
        if self._finalizer.alive:
            with contextlib.suppress(NotFound):
                check(load().gpumem_release_reservation(self._session._handle, self._number))
            self._finalizer.detach()

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        leave(self.release, error)

    def __repr__(self) -> str:
        return f"<gpumem.Reservation of {self._name!r}>"


def region_info(handle: int) -> _abi.RegionInfo:
    """All zero for what is no region."""
    info = _abi.sized(_abi.RegionInfo)
    check(load().gpumem_import_region(handle, ctypes.byref(info)))
    return info


def _close(handle: int, _: Remainder) -> None:
    load().gpumem_import_close(handle)


class Region(Import):
    """A region of another process, mapped into this one for reading, unless it was asked for to be written. Made by
    Session.map_region.

    A region stays mapped when its publisher removes it, gives it back or ends. When nobody of the publisher's tenant
    has it any more, it is charged to a session that has mapped it. Otherwise as Import.
    """

    def __init__(self, handle: int, session: Session, name: str, *, remainder: Remainder, writable: bool = False):
        """Use Session.map_region."""
        super().__init__(handle, remainder)
        self._session, self._name, self._writable = session, name, writable
        self._held: Held | None = None  # once there are arrays
        self._holding = threading.Lock()
        self._info = region_info(handle)

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> int:
        """Higher than that of every region that was published before."""
        return int(self._info.version)

    @property
    def layout(self) -> int:
        """So many of the region's last bytes say what is in it."""
        return int(self._info.layout)

    @property
    def digest(self) -> builtins.bytes:
        """Of the layout, as the publisher says: 32 bytes."""
        return builtins.bytes(self._info.digest)

    def unmap(self) -> None:
        """Unmaps the region and keeps its addresses: its arrays are good again after remap(). Until then work on them fails,
        and on a simulated GPU the process faults. To the broker it is as if the region were closed: the memory can come back,
        and an adopted region ends. The caller has synchronised its work on it.

        Raises FailedPrecondition (it is unmapped, or closed), GpumemError (the driver's).
        """
        self._check_open()
        check(load().gpumem_import_unmap(self._handle))

    def remap(self, *, newest: bool = False) -> None:
        """Maps it again at the same addresses: the same version or, if asked for, the newest, of the same layout.

        Raises NotFound (the region has ended), StaleLayout (the newest has another layout or size, or tells no digest of its
        layout; map it anew), FailedPrecondition (it is mapped, or closed), others as Session.map_region. It stays unmapped
        then.
        """
        self._check_open()
        options = _abi.sized(_abi.RemapOptions, newest=bool(newest))
        try:
            check(load().gpumem_import_remap(self._handle, ctypes.byref(options)))
        except FailedPrecondition as error:
            if newest and "another layout" in str(error):
                raise StaleLayout(str(error)) from None
            raise
        self._info = region_info(self._handle)

    @property
    def is_mapped(self) -> bool:
        """Whether its addresses can be used: unmap() and close() end that."""
        return bool(load().gpumem_import_is_mapped(self._handle))

    @property
    def is_pinned(self) -> bool:
        """Whether it is memory of the host store that is pinned in this process: a driver may refuse to pin what is mapped for
        reading."""
        return bool(load().gpumem_import_is_pinned(self._handle))

    def view(self) -> memoryview:
        """Its bytes in place, read-only unless it was mapped writable. The view keeps the region mapped. Raises BufferError (a
        GPU's memory), FailedPrecondition (closed, unmapped)."""
        held = self._hold()
        if not _memory.is_host_memory(self.ordinal):
            raise BufferError(f"{self._title} is in a GPU's memory")
        return _memory.view(self.address, self.size, held, read_only=not self._writable)

    def read_layout(self, *, expect_digest: builtins.bytes | None = None) -> Layout:
        """Which arrays are in it. Copies the layout's bytes to the host, and nothing else.

        expect_digest: of the layout that the caller was made for.
        Raises StaleLayout (the digest is another), InvalidArgument (the region's last bytes are no layout, or arrays lie
        outside of it; the words say which), FailedPrecondition (closed).
        """
        if expect_digest is not None and expect_digest != self.digest:
            raise StaleLayout(f"{self._title} has the layout {self.digest.hex()[:16]}…, and {expect_digest.hex()[:16]}… is "
                              "expected: other arrays have been published under this name; map the version that has "
                              "them, or load these")
        if not 0 < self.layout <= min(self.size, MOST_BYTES):
            raise InvalidArgument(f"{self._title} does not say which arrays are in it: its layout has {self.layout} of its "
                                  f"{self.size} bytes")
        self._hold()
        room = self.size - self.layout
        with _memory.copies(self.ordinal) as copies:
            written: builtins.bytes = copies.copy_out(self.address + room, self.layout)
        try:
            layout = Layout.decode(written, room)
        except InvalidArgument as error:
            raise InvalidArgument(f"{self._title} {error}") from None
        if any(self.digest) and layout.digest != self.digest:
            raise InvalidArgument(f"{self._title} has a layout that is not the one whose digest was published; it was written "
                                  "to since")
        return layout

    def arrays(self, *, private: Iterable[str] | None = None, expect_digest: builtins.bytes | None = None,
               expect: Mapping[str, builtins.bytes] | None = None) -> Arrays:
        """Its arrays by name: in place, and for reading if the region is. Private ones are copies, for writing, in memory
        that is charged to this session.

        private: patterns of names, as of fnmatch; None: those that the publisher says; (): none.
        expect: digests of the arrays that the caller uses, by their names (ArrayLayout.digest); others may have changed.
        Raises as read_layout; StaleLayout, too: of the array that is not as expected; OutOfMemory (copies), GpumemError (the
        driver's).
        """
        layout = self.read_layout(expect_digest=expect_digest)
        self._check_arrays(layout, expect or {})
        held = self._hold()
        chosen = None if private is None else private_names((one.name for one in layout.arrays), private)
        own = [one for one in layout.arrays if (one.private if chosen is None else one.name in chosen)]
        copies = self._copies(own) if own else {}
        return Arrays(layout, (copies.get(one.name) or Array(one, self.address, held, read_only=not self._writable)
                               for one in layout.arrays))

    def _check_arrays(self, layout: Layout, expected: Mapping[str, builtins.bytes]) -> None:
        found = {one.name: one for one in layout.arrays if one.name in expected}
        for name, digest in expected.items():
            if name not in found:
                raise StaleLayout(f"{self._title} has no array {name!r}, which is expected; map the version that has it")
            if found[name].digest != digest:
                raise StaleLayout(f"{self._title} has another array {name!r} than is expected: {found[name].dtype} "
                                  f"{found[name].shape}, strides {found[name].strides}; map the version that has it")

    def close(self) -> None:
        """Unmaps the memory; if there are arrays of it, once the last of them is gone. Again: nothing."""
        with self._holding:
            held, self._held = self._held, None
        if held is None:
            super().close()

    @property
    def _title(self) -> str:
        return f"region {self.name!r}, version {self.version},"

    def _closed(self) -> FailedPrecondition:
        return FailedPrecondition(f"region {self.name!r} has been closed")

    def _check_open(self) -> None:
        """No more of it is unmapped than its arrays, which outlive it, are promised."""
        with self._holding:
            if self._held is None and not self._finalizer.alive:
                raise self._closed()

    def _hold(self) -> Held:
        """What keeps it mapped while there are arrays."""
        with self._holding:
            if self._held is not None or self._finalizer.alive:
                if not self.is_mapped:
                    raise FailedPrecondition(f"{self._title} is unmapped: map it again first")
            if self._held is None:
                if not self._finalizer.detach():
                    raise self._closed()
                self._held = Held(functools.partial(_close, self._handle, self._remainder), self.ordinal)
            return self._held

    def _copies(self, arrays: Sequence[ArrayLayout]) -> dict[str, Array]:
        slice = self._session.open_slice(device=self.device, label="private copies")
        try:
            slice.grow(max(1, sum(aligned(one.span) for one in arrays)))
            held, offset, copies = Held(slice.close, slice.ordinal), 0, {}
            with _memory.copies(slice.ordinal) as place:
                for one in arrays:
                    place.copy(slice.base + offset, self.address + one.offset, one.span)
                    copies[one.name] = Array(one, slice.base + offset - one.offset, held, read_only=False)
                    offset += aligned(one.span)
        except BaseException:
            slice.close()
            raise
        return copies
