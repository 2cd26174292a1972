"""Publishes arrays under one name, for other processes to map.

    with gpumem.publish_arrays(session, "weights", {"weight": weight, "bias": bias}) as publication:
        ...                 # other processes: session.map_region("weights").arrays()

The region is memory of this process's slice and ends with it; readers that have mapped it keep it.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import _driver
from ._library import leave
from ._source import is_on_host, source_of
from .arrays import PRIVATE, is_private
from .errors import InvalidArgument, NotFound
from .layout import Layout, aligned
from .region import Charge, Region, Sharing
from .session import Session
from .slice import Slice

# Fills the memory from an address on with the layout's arrays. The device's primary context is current.
Fill = Callable[[int], None]


class Publication:
    """A region of arrays that this process has published. Use it as a context manager, or call close()."""

    def __init__(self, session: Session, slice: Slice, name: str, version: int, layout: Layout, *, owns_slice: bool):
        """Use publish_arrays."""
        self._session, self._slice, self._owns_slice = session, slice, owns_slice
        self._name, self._version, self._layout = name, version, layout

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> int:
        """As Region.version."""
        return self._version

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def digest(self) -> bytes:
        """Of the layout: what readers expect (Region.arrays)."""
        return self._layout.digest

    @property
    def slice(self) -> Slice:
        """Whose memory it is."""
        return self._slice

    def commit(self) -> int:
        """As Region.commit: this process has changed the content."""
        return self._slice.commit(self._version)

    def close(self) -> None:
        """Removes the region, and gives its memory back if no slice was passed. Again: nothing. Raises as
        Session.remove_region, except NotFound."""
        try:
            with contextlib.suppress(NotFound):  # it has expired, or was removed
                self._session.remove_region(self._name, version=self._version)
        finally:
            if self._owns_slice:
                self._slice.close()

    def _hand_over(self) -> None:
        """Gives the memory back, if no slice was passed, and does not remove the region: it goes on with the processes of
        its tenant that have mapped it, or that it is kept for. Raises as Slice.close."""
        if self._owns_slice:
            self._slice.close()

    def __enter__(self) -> Publication:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        leave(self.close, error)

    def __repr__(self) -> str:
        return f"<gpumem.Publication of {self._name!r}, version {self._version}: {len(self._layout.arrays)} arrays>"


def publish_arrays(session: Session, name: str, arrays: Mapping[str, Any], *, metadata: Mapping[str, str] | None = None,
                   private: Iterable[str] = PRIVATE, slice: Slice | None = None, **options: Any) -> Publication:
    """Copies arrays into one region, in C's order, each at a multiple of 256 bytes, and publishes it under `name`.

    arrays: by name; NumPy's, tensors of PyTorch, JAX, TensorFlow and CuPy, on the host or on the device, and buffers.
    metadata: texts for readers.
    private: patterns, as of fnmatch, of the names of which readers get a copy of their own, by default those that
    frameworks write to.
    slice: grown by the region, which lies behind what is committed; None: a slice of its own.
    options: of `publish_layout`.
    Raises InvalidArgument (an array that is none; the words say which), others as Slice.grow and Slice.publish.
    """
    sources = {one: source_of(one, array) for one, array in arrays.items()}
    patterns = private if isinstance(private, str) else tuple(private)
    layout = Layout.packed({one: (source.dtype.name, source.shape) for one, source in sources.items()}, metadata,
                           [one for one in sources if is_private(one, patterns)])

    def fill(base: int) -> None:
        _driver.synchronize()  # work that fills arrays on the device may be on any stream
        for placed in layout.arrays:
            source = sources[placed.name]
            copy = _driver.copy_in if is_on_host(source) else _driver.copy
            copy(base + placed.offset, source.address, placed.nbytes)

    return publish_layout(session, name, layout, fill, slice=slice, **options)


def map_or_publish_arrays(session: Session, name: str, make: Callable[[], Mapping[str, Any]], *, wait: float = 600.0,
                          life: float | None = None, writable: bool = False, **options: Any) -> Region:
    """Maps the region `name` of this session's tenant. If there is none, one of the processes that call this makes and
    publishes it, and the others wait for it: the arrays are made once, and all share them.

    make: answers the arrays, as of publish_arrays. It is called only in the process that is to publish them. What it
    raises is raised here; then another process that waits calls its own.
    wait: seconds for what another process makes, and for memory that others hold, as Slice.grow.
    life: seconds after which another process may begin to make them although this one lives; None: 10 minutes.
    writable: as of Session.map_region.
    options: of `publish_arrays`. The region lasts while any process of the tenant has it mapped, this one included;
    with keep=True, longer.
    Raises NotFound (another process has not published it within `wait`), others as Session.map_or_reserve,
    publish_arrays and Session.map_region.
    """
    found = session.map_or_reserve(name, writable=writable, wait=wait, life=life)
    if isinstance(found, Region):
        return found
    with found:
        publication = publish_arrays(session, name, make(), wait=wait, **options)
        found._fulfilled()
    try:
        region = session.map_region(name, version=publication.version, writable=writable)
    except BaseException:
        publication.close()
        raise
    publication._hand_over()
    return region


def publish_layout(session: Session, name: str, layout: Layout, fill: Fill, *, slice: Slice | None = None,
                   device: str | None = None, wait: float = 0.0, sharing: Sharing = Sharing.PRIVATE,
                   readers: Sequence[str] = (), life: float | None = None, keep: bool = False,
                   linger: float | None = None, charge: Charge = Charge.PUBLISHER) -> Publication:
    """Takes memory for `layout`, has `fill` fill it, writes the layout behind it and publishes it.

    device: UUID; None: the first. wait: seconds for memory that others hold, as Slice.grow.
    sharing, readers, life, keep, linger, charge: as Slice.publish.
    Raises as Slice.grow and Slice.publish, and what `fill` raises; then nothing is published, and a slice that was passed
    has its size of before.
    """
    if slice is not None and device not in (None, slice.device):
        raise InvalidArgument(f"the slice is of the device {slice.device}, not {device}")
    encoded = layout.encoded
    start = aligned(layout.end)
    size = start + len(encoded)
    with _grown(session, slice, size, device, wait) as (place, offset):
        with _driver.current(place.ordinal):
            fill(place.base + offset)
            _driver.write(place.base + offset + start, encoded)
            _driver.synchronize()  # a copy from the host may return before the device has it
        version = place.publish(name, offset, size, sharing=sharing, readers=readers, layout=len(encoded),
                                digest=layout.digest, life=life, keep=keep, linger=linger, charge=charge)
    return Publication(session, place, name, version, layout, owns_slice=slice is None)


@contextlib.contextmanager
def _grown(session: Session, slice: Slice | None, size: int, device: str | None,
           wait: float) -> Iterator[tuple[Slice, int]]:
    """A slice and the offset from which on `size` bytes are committed. As before when the statement raises."""
    place = slice or session.open_slice(device=device, label="region")  # everybody sees labels, and not the name
    offset = place.committed
    try:
        place.grow(offset + size, wait=wait)
        yield place, offset
    except BaseException:
        place.shrink(offset) if slice else place.close()
        raise
