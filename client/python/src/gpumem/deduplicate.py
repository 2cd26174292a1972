"""Publishing the same bytes twice, with one copy of them.

Whoever publishes names a hash of the bytes. A region of the same tenant that was published with that hash is mapped and
compared, byte by byte: a hash is what its publisher says. Then the region's memory gets another name.
"""
from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from . import _driver
from .errors import FailedPrecondition, NotFound, OutOfMemory, PermissionDenied, Unavailable
from .layout import Layout, aligned
from .region import Region
from .session import Session

STAGING_BYTES = 16 << 20
# The pieces of a region's bytes, in their order: offset, and a buffer of what is there. What lies between them is zeros. It can be asked
# for again. The device's primary context is current.
Pieces = Callable[[], Iterator[tuple[int, Any]]]


class Content:
    """The bytes of a region of arrays that is to be published: the arrays, and the layout behind them."""

    def __init__(self, layout: Layout, arrays: Pieces):
        self.layout, self._arrays = layout, arrays
        self._encoded = layout.encoded
        self.start = aligned(layout.end)  # of the layout
        self.size = self.start + len(self._encoded)
        self._hash = b""

    def hash(self) -> bytes:
        """SHA-256 of all bytes. Within `_driver.current`, as the others."""
        if not self._hash:
            checksum = hashlib.sha256()
            for _, piece in self._pieces():
                checksum.update(piece)
            self._hash = checksum.digest()
        return self._hash

    def is_in(self, region: Region) -> bool:
        """Whether these are the region's bytes. Raises GpumemError (the driver's)."""
        return region.size == self.size and all(
            _driver.copy_out(region.address + at, len(piece)) == piece for at, piece in self._pieces())

    def _pieces(self) -> Iterator[tuple[int, memoryview]]:
        """All bytes, without gaps: 16 MiB in each at most."""
        done = 0
        for offset, given in self._arrays():
            piece = memoryview(given).cast("B")
            yield from _zeros(done, offset)
            for at in range(0, len(piece), STAGING_BYTES):
                yield offset + at, piece[at:at + STAGING_BYTES]
            done = offset + len(piece)
        yield from _zeros(done, self.start)
        yield self.start, memoryview(self._encoded)


def _zeros(begin: int, end: int) -> Iterator[tuple[int, memoryview]]:
    for at in range(begin, end, STAGING_BYTES):
        yield at, memoryview(bytes(min(STAGING_BYTES, end - at)))


def publish_copy(session: Session, device: str, content: Content, name: str, **options: Any) -> tuple[Region, int] | None:
    """Gives a region with these bytes, of the session's tenant and on the device, another name. Answers the region,
    mapped, and the new version; None: there is none, or it cannot have these options.

    options: of Region.publish.
    Raises as Region.publish; FailedPrecondition, too: a broker that knows no contents.
    """
    try:
        region = session.map_content(content.hash(), content.size, layout=len(content.layout.encoded),
                                     digest=content.layout.digest, device=device)
    except (NotFound, OutOfMemory, PermissionDenied, Unavailable):
        return None
    try:
        if content.is_in(region):
            return region, region.publish(name, **options)
    except (FailedPrecondition, NotFound):
        pass  # it has ended meanwhile, or is shared with fewer
    except BaseException:
        region.close()
        raise
    region.close()
    return None
