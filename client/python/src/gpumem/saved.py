"""Regions in files: saved as they are, layout included, and published again from there.

    gpumem.saved.save(session.map_region("weights"), "weights.region")
    restored = gpumem.saved.restore(session, "weights", "weights.region", keep=True)

A file is whole or not there: it is written beside its place, and renamed. A file that was truncated or changed is refused
before anything is published. The content passes through one staging buffer of host memory, whatever its size.
"""
from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import stat
import struct
import tempfile
from typing import Any, BinaryIO, NamedTuple, NoReturn

from . import _driver
from .errors import InvalidArgument
from .publish import _grown
from .region import DIGEST_BYTES, Region
from .session import Session
from .slice import Slice

STAGING_BYTES = 16 << 20
_MAGIC = b"GMEMRGN1"
# Magic, bytes of the content, of these the layout's, the layout's digest, SHA-256 of all that and of the content.
_HEADER = struct.Struct(f"<8sQQ{DIGEST_BYTES}s32s")
_UNSUMMED = _HEADER.size - 32


class Restored(NamedTuple):
    """A region that was published from a file."""

    slice: Slice  # whose memory it is
    version: int


def save(region: Region, path: str | os.PathLike[str]) -> None:
    """Writes a mapped region to a file, in place of one that is there. Raises OSError; GpumemError (the driver's)."""
    path = os.path.abspath(os.fspath(path))
    file, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=os.path.basename(path) + ".")
    try:
        with open(file, "wb") as out:
            _write(region, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # the new name outlives a crash of the machine, too
    finally:
        os.close(folder)


def restore(session: Session, name: str, path: str | os.PathLike[str], *, slice: Slice | None = None,
            device: str | None = None, wait: float = 0.0, **options: Any) -> Restored:
    """Publishes what `save` has written.

    slice: grown by the region, which lies behind what is committed; None: a slice of its own.
    device: UUID; None: the first. wait: seconds for memory that others hold, as Slice.grow.
    options: sharing, readers, life, keep, linger, as of Slice.publish.
    Raises InvalidArgument (no such file's content, truncated, changed), OSError, others as Slice.grow and Slice.publish;
    then nothing is published, and a slice that was passed has its size of before.
    """
    if slice is not None and device not in (None, slice.device):
        raise InvalidArgument(f"the slice is of the device {slice.device}, not {device}")
    with open(path, "rb", opener=_without_waiting) as file:
        head = file.read(_HEADER.size)
        size, layout, digest, checksum = _read_header(file, head)
        with _grown(session, slice, size, device, wait) as (place, offset):
            with _driver.current(place.ordinal):
                if _read(file, head, place.base + offset, size) != checksum:
                    _refuse(file, "its content has changed since it was written")
                _driver.synchronize()  # a copy from the host may return before the device has it
            version = place.publish(name, offset, size, layout=layout, digest=digest, **options)
    return Restored(place, version)


def _without_waiting(path: str, flags: int) -> int:
    """A FIFO would be waited for until somebody writes to it; it is refused as no saved region."""
    return os.open(path, flags | os.O_NONBLOCK)


def _write(region: Region, out: BinaryIO) -> None:
    head = _HEADER.pack(_MAGIC, region.size, region.layout, region.digest, bytes(32))[:_UNSUMMED]
    checksum = hashlib.sha256(head)
    out.write(head + bytes(32))
    with _driver.current(region.ordinal):
        for at in range(0, region.size, STAGING_BYTES):
            piece = _driver.copy_out(region.address + at, min(STAGING_BYTES, region.size - at))
            checksum.update(piece)
            out.write(piece)
    out.seek(_UNSUMMED)
    out.write(checksum.digest())


def _read_header(file: BinaryIO, head: bytes) -> tuple[int, int, bytes, bytes]:
    """Size, size of the layout, its digest, and the checksum."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or len(head) < _HEADER.size or not head.startswith(_MAGIC):
        _refuse(file, "it is no saved region")
    _, size, layout, digest, checksum = _HEADER.unpack(head)
    there = os.fstat(file.fileno()).st_size - _HEADER.size
    if there != size:
        _refuse(file, f"it has {there} bytes of a region of {size}" + (": it is truncated" if there < size else ""))
    if not 0 < size or layout > size:
        _refuse(file, f"a layout of {layout} bytes in a region of {size}")
    return size, layout, digest, checksum


def _read(file: BinaryIO, head: bytes, address: int, size: int) -> bytes:
    """Copies the content to the device. Answers its checksum."""
    checksum = hashlib.sha256(head[:_UNSUMMED])
    with _driver.pinned(min(size, STAGING_BYTES)) as buffer:
        source = ctypes.addressof(ctypes.c_ubyte.from_buffer(buffer))
        for at in range(0, size, STAGING_BYTES):
            piece = buffer[:min(STAGING_BYTES, size - at)]
            done = 0
            while done < len(piece):
                count = file.readinto(piece[done:])  # type: ignore[attr-defined]
                if not count:
                    _refuse(file, f"it was truncated while it was read, at byte {at + done}")
                done += count
            checksum.update(piece)
            _driver.copy_in(address + at, source, len(piece))
    return checksum.digest()


def _refuse(file: BinaryIO, why: str) -> NoReturn:
    raise InvalidArgument(f"{file.name}: {why}")
