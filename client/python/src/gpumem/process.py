"""One session and an allocator for each device, shared by the whole process. For frameworks that take two functions and
no state."""
from __future__ import annotations

import ctypes
from typing import SupportsIndex

from . import _abi
from ._library import check, load
from ._values import encoded, milliseconds_of
from .allocator import Allocator
from .session import Session, allocator_options


def configure_default(*, runtime_folder: str | None = None, label: str | None = None, timeout: float = 1.0,
                      limit: SupportsIndex = 0, wait: float | None = None, idle: float = 2.0) -> None:
    """Says what the process's own session and allocators are opened with: Session.connect's words, and
    Session.open_allocator's for each device. `label` is both the session's and the allocators'.
    Raises FailedPrecondition (they are open already), InvalidArgument."""
    session = _abi.sized(_abi.SessionOptions, runtime_folder=encoded(runtime_folder, "runtime_folder"),
                         label=encoded(label, "label"), timeout_ms=milliseconds_of(timeout, "timeout"))
    allocator = allocator_options(limit=limit, label=label, wait=wait, idle=idle)
    check(load().gpumem_configure_default(ctypes.byref(session), ctypes.byref(allocator)))


def default_session() -> Session:
    """The process's own session, connected at the first call; never closed. Raises as Session.connect."""
    handle = _abi.Handle()
    check(load().gpumem_default_session(ctypes.byref(handle)))
    return Session(handle.value or 0, shared=True)


def default_allocator(device: int = 0) -> Allocator:
    """The process's own allocator for the device that is `device` among those this process sees, opened at the first
    call; never closed. PyTorch's memory comes from it (gpumem.torch). Its memory goes back when it idles, by
    Allocator.trim, and with the process. Raises as Session.connect and Session.open_allocator."""
    handle = _abi.Handle()
    check(load().gpumem_default_allocator(device, ctypes.byref(handle)))
    return Allocator(handle.value or 0, shared=True)
