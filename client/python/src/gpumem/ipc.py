"""Memory that processes of a tenant share: a handle, 64 bytes, names it; an import maps it."""
from __future__ import annotations

import builtins
import ctypes
import os
import weakref
from typing import Any, SupportsIndex

from . import _abi
from ._handle import Handle, Remainder
from ._library import check, leave, load, text
from ._values import milliseconds_of, size_of


def exported(function: Any, whose: tuple[int, ...], offset: SupportsIndex, bytes: SupportsIndex, life: float,
             uses: SupportsIndex) -> builtins.bytes:
    """The handle that the library's `function` makes of a part of `whose`. Raises as Slice.export_handle."""
    options = _abi.sized(_abi.ExportOptions, life_ms=milliseconds_of(life, "life"), uses=size_of(uses, "uses"))
    handle = _abi.IpcHandle()
    check(function(*whose, size_of(offset, "offset"), size_of(bytes, "bytes"), ctypes.byref(options),
                   ctypes.byref(handle)))
    return builtins.bytes(handle.bytes)


def _unmap(handle: int, owner: int) -> None:
    if os.getpid() == owner:
        load().gpumem_import_close(handle)


class Import(Handle):
    """Memory of another session, mapped into this process, readable and writable. Made by Session.import_handle.

    The memory stays mapped when that session gives it back or its process ends, and is then charged to this session.
    When the broker asks for the memory, it asks this session, too: a pressure handler closes the import.
    Use it as a context manager, or call close(). The caller has synchronised its work on the memory, also when the
    import is forgotten. One that is open when the interpreter ends goes with the process.
    Threads  any.
    Fork     as Slice.
    """

    def __init__(self, handle: int, remainder: Remainder | None = None):
        self._handle, self._remainder = handle, remainder or Remainder(load().gpumem_import_free, handle)
        self._finalizer = weakref.finalize(self, _unmap, handle, os.getpid())
        self._finalizer.atexit = False  # work on the device may still use it

    @property
    def address(self) -> int:
        """The first address of the range; a CUdeviceptr in value."""
        return int(load().gpumem_import_address(self._handle))

    @property
    def size(self) -> int:
        """Bytes."""
        return int(load().gpumem_import_bytes(self._handle))

    @property
    def device(self) -> str:
        """The UUID, or "host"."""
        return text(load().gpumem_import_device(self._handle))

    @property
    def ordinal(self) -> int:
        """This process's number of the device; -1: the host store."""
        return int(load().gpumem_import_ordinal(self._handle))

    def close(self) -> None:
        """Unmaps the memory. Again: nothing."""
        if self._finalizer.detach():
            check(load().gpumem_import_close(self._handle))

    def __enter__(self) -> Import:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        leave(self.close, error)
