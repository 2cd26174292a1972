"""Copies to and from the memory of slices and regions: of a device by its driver, of the host store by the processor."""
from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from . import _driver

HOST = -1  # as an ordinal


class HostCopies:
    """Copies at addresses of this process. The module `_driver` has the same functions for a device."""

    @staticmethod
    def copy_in(address: int, source: int, size: int) -> None:
        ctypes.memmove(address, source, size)

    copy = copy_in

    @staticmethod
    def copy_from_device(address: int, source: int, size: int) -> None:
        if size:
            with _driver.current(_driver.current_ordinal()):
                _driver.copy_to_host(address, source, size)

    @staticmethod
    def write(address: int, content: bytes) -> None:
        ctypes.memmove(address, content, len(content))

    @staticmethod
    def copy_out(address: int, size: int) -> bytes:
        return bytes((ctypes.c_ubyte * size).from_address(address))

    @staticmethod
    def synchronize() -> None:
        pass

    synchronize_unless_captured = synchronize

    @staticmethod
    @contextlib.contextmanager
    def pinned(size: int) -> Iterator[memoryview]:
        yield memoryview(bytearray(size))


@contextlib.contextmanager
def copies(ordinal: int) -> Iterator[Any]:
    """The copies of the memory with this ordinal; of a device, its primary context is current meanwhile."""
    if ordinal == HOST:
        yield HostCopies
        return
    with _driver.current(ordinal):
        yield _driver


def is_host_memory(ordinal: int) -> bool:
    """Whether the processor reads the memory: of the host store, and of a simulated GPU."""
    return ordinal == HOST or _driver.is_host_memory(ordinal)


def view(address: int, size: int, owner: object, *, read_only: bool) -> memoryview:
    """Bytes in place. The view keeps `owner`."""
    if size == 0:
        return memoryview(b"")

    class Bytes(ctypes.c_ubyte * size):  # type: ignore[misc]  # with room for an attribute
        pass

    place = Bytes.from_address(address)
    place.held = owner
    shown = memoryview(place).cast("B")
    return shown.toreadonly() if read_only else shown
