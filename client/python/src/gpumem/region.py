"""Regions: named memory that one process publishes and others map, of other tenants too."""
from __future__ import annotations

import builtins
import ctypes
import enum
from collections.abc import Sequence
from typing import SupportsIndex

from . import _abi
from ._library import check, load
from ._values import encoded, milliseconds_of, size_of
from .errors import InvalidArgument
from .ipc import Import

DIGEST_BYTES = 32


class Sharing(enum.IntEnum):
    """Who may map a region, besides the tenant that publishes it."""

    PRIVATE = 0
    """Nobody."""
    GROUP = 1
    """Whoever belongs to the tenant that it belongs to."""
    PUBLIC = 2
    """Everybody who may connect to the broker."""
    NAMED = 3
    """The tenants that are named, and whoever belongs to them."""


def published(slice_handle: int, name: str, offset: SupportsIndex, bytes: SupportsIndex, sharing: Sharing,
              readers: Sequence[str], layout: SupportsIndex, digest: builtins.bytes, life: float | None) -> int:
    """The version of the region. Raises as Slice.publish."""
    if len(digest) not in (0, DIGEST_BYTES):
        raise InvalidArgument(f"a digest has {DIGEST_BYTES} bytes, not {len(digest)}")
    names = (ctypes.c_char_p * max(1, len(readers)))(*(encoded(reader, "a reader") for reader in readers))
    options = _abi.sized(_abi.PublishOptions, sharing=int(sharing), readers=names, reader_count=len(readers),
                         layout=size_of(layout, "layout"),
                         digest=(ctypes.c_uint8 * DIGEST_BYTES)(*digest),
                         life_ms=0 if life is None else milliseconds_of(life, "life"))
    version = ctypes.c_uint64()
    check(load().gpumem_slice_publish(slice_handle, encoded(name, "name"), size_of(offset, "offset"),
                                      size_of(bytes, "bytes"), ctypes.byref(options), ctypes.byref(version)))
    return int(version.value)


class Region(Import):
    """A region of another process, mapped into this one for reading, unless it was asked for to be written. Made by
    Session.map_region.

    It stays mapped when its publisher removes it, gives it back or ends. When nobody of the publisher's tenant has it any
    more, it is charged to a session that has mapped it. Otherwise as Import.
    """

    def __init__(self, handle: int):
        super().__init__(handle)
        info = _abi.sized(_abi.RegionInfo)
        check(load().gpumem_import_region(handle, ctypes.byref(info)))
        self._info = info

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
