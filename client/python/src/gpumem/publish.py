"""Publishes arrays under one name, for other processes to map.

    with gpumem.publish_arrays(session, "weights", {"weight": weight, "bias": bias}) as publication:
        ...                 # other processes: session.map_region("weights").arrays()

The region is memory of this process's slice and ends with it; readers that have mapped it keep it.
"""
from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import _driver, _memory
from ._handle import Handle
from ._library import leave
from ._source import is_on_host, source_of
from .arrays import PRIVATE, private_names
from .errors import FailedPrecondition, InvalidArgument, NotFound
from .layout import Layout
from .region import Region, Sharing
from .session import Session
from .slice import Slice

# Fills the memory from an address on with the layout's arrays, by its copies: the module _driver, or _memory.HostCopies. Of a
# device, the primary context is current.
Fill = Callable[[int, Any], None]


class Publication(Handle):
    """A region of arrays that this process has published. Use it as a context manager, or call close(): both end the region.
    release() leaves it to others. One that is forgotten gives its memory back, with a ResourceWarning: the region ends unless others
    have mapped it, or it is kept."""

    def __init__(self, session: Session, slice: Slice, name: str, version: int, layout: Layout, *, owns: bool):
        """Use publish_arrays. `owns`: the slice is closed with it."""
        self._session, self._slice, self._owns = session, slice, owns
        self._name, self._version, self._layout = name, version, layout
        self._open = True

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
    def device(self) -> str:
        """The UUID."""
        return self._slice.device

    @property
    def slice(self) -> Slice:
        """The slice that has its memory."""
        return self._slice

    def close(self) -> None:
        """Removes the region, and gives its memory back if no slice was passed. Again, and after release: nothing. Raises as
        Session.remove_region, except NotFound."""
        if not self._open:
            return
        try:
            self._give_back()
        finally:
            with contextlib.suppress(NotFound):  # it has expired, was removed, or ended with its memory
                self._session.remove_region(self._name, version=self._version)
        self._open = False

    def release(self) -> None:
        """Gives the memory back, if no slice was passed, and does not remove the region: it goes on with the processes of
        its tenant that have mapped it, or as it is kept. Again, and after close: nothing. Raises as Slice.close."""
        self._give_back()
        self._open = False

    def _give_back(self) -> None:
        if self._owns:
            self._slice.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False) and self._owns:
            warnings.warn(f"{self!r} was forgotten: close it, or release it to those who have mapped it", ResourceWarning,
                          source=self)

    def __enter__(self) -> Publication:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        leave(self.close, error)

    def __repr__(self) -> str:
        return f"<gpumem.Publication of {self._name!r}, version {self._version}: {len(self._layout.arrays)} arrays>"


def publish_arrays(session: Session, name: str, arrays: Mapping[str, Any], *, metadata: Mapping[str, str] | None = None,
                   array_metadata: Mapping[str, Mapping[str, str]] | None = None, private: Iterable[str] = PRIVATE,
                   slice: Slice | None = None, **options: Any) -> Publication:
    """Copies arrays into one region, in C's order, each at a multiple of 256 bytes, and publishes it under `name`.

    arrays: by name; NumPy's, tensors of PyTorch, JAX, TensorFlow and CuPy, on the host or on the device, and buffers.
    metadata: texts for readers. array_metadata: texts about single arrays, by the arrays' names.
    private: patterns, as of fnmatch, of the names of which readers get a copy of their own, by default those that
    frameworks write to.
    slice: grown by the region, which lies behind what is committed; None: a slice of its own.
    options: of `publish_layout`.
    Raises InvalidArgument (an array that is none, metadata that is no text or of no array, a layout of more than 32 MiB; the
    words say which), others as Slice.grow and Slice.publish.
    """
    sources = {one: source_of(one, array) for one, array in arrays.items()}
    layout = Layout.packed({one: (source.dtype.name, source.shape) for one, source in sources.items()}, metadata,
                           private_names(sources, private), array_metadata)

    def fill(base: int, memory: Any) -> None:
        # Work that fills arrays may be on any stream, of any device that has one of them.
        memory.synchronize()
        on_devices = [one.address for one in sources.values() if not is_on_host(one) and 0 not in one.shape]
        if on_devices:
            with _driver.current(_driver.current_ordinal()):
                devices = set(map(_driver.ordinal_of, on_devices))
            for ordinal in devices:
                with _driver.current(ordinal):
                    _driver.synchronize()
        for placed in layout.arrays:
            source = sources[placed.name]
            copy = memory.copy_in if is_on_host(source) else memory.copy_from_device
            copy(base + placed.offset, source.address, placed.nbytes)

    return publish_layout(session, name, layout, fill, slice=slice, **options)


class Replicas(Handle):
    """Equal arrays on several devices, published under one name. Use it as a context manager, or call close()."""

    def __init__(self, publications: Sequence[Publication]):
        """Use publish_replicas."""
        self._publications = {publication.device: publication for publication in publications}

    @property
    def devices(self) -> list[str]:
        """UUIDs, in the order in which they were published."""
        return list(self._publications)

    def __getitem__(self, device: str) -> Publication:
        """The publication on a device, by its UUID."""
        return self._publications[device]

    def __len__(self) -> int:
        return len(self._publications)

    def __iter__(self) -> Iterator[Publication]:
        return iter(self._publications.values())

    def close(self) -> None:
        """Closes each. Again: nothing. Raises as Publication.close, once all are closed."""
        with contextlib.ExitStack() as all_of_them:
            for publication in self:
                all_of_them.callback(publication.close)

    def __enter__(self) -> Replicas:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        leave(self.close, error)


def publish_replicas(session: Session, name: str, arrays: Mapping[str, Any], *, devices: Sequence[str] | None = None,
                     **options: Any) -> Replicas:
    """Publishes the arrays once for each device, all under one name: readers map those of their own device (map_nearest, or
    map_region with `device`). Each device's memory is charged. If one cannot be published, none is.

    devices: UUIDs; None: those that the broker lends and that this process sees.
    options: of publish_arrays, but for `slice` and `device`.
    Raises InvalidArgument (no device, or one twice), NotFound (one that is not lent, or that this process does not see),
    others as publish_arrays.
    """
    wanted = _seen(session) if devices is None else list(devices)
    if not wanted or len(set(wanted)) != len(wanted):
        raise InvalidArgument(f"replicas are on one device or more, each once, not on {wanted}")
    with contextlib.ExitStack() as published:
        replicas = Replicas([published.enter_context(publish_arrays(session, name, arrays, device=device, **options))
                             for device in wanted])
        published.pop_all()
    return replicas


def map_nearest(session: Session, name: str, *, device: str | None = None, peer: bool = False, **options: Any) -> Region:
    """Maps the newest region of the name on the caller's device.

    device: UUID; None: that of the current context, or this process's first.
    peer: if there is none there, maps one of another device that this process sees, for the caller's device to use from
    peer to peer.
    options: of Session.map_region, but for `wait` and `access`.
    Raises NotFound (none on the device, and with `peer` on none that this process sees; the words say which it does
    not see), FailedPrecondition (with `peer`: the caller's device has no access to those that have one), others as
    Session.map_region.
    """
    nearest = device or _driver.device_uuid(_driver.current_ordinal())
    try:
        return session.map_region(name, device=nearest, **options)
    except NotFound:
        if not peer:
            raise
    unreached: FailedPrecondition | None = None
    for other in _seen(session):
        if other == nearest:
            continue
        try:
            return session.map_region(name, device=other, access=(nearest,), **options)
        except NotFound:
            pass
        except FailedPrecondition as error:
            unreached = error
    if unreached:
        raise unreached
    return session.map_region(name, access=(nearest,), **options)  # which says why not


def _seen(session: Session) -> list[str]:
    """The devices that are lent and that this process sees, in its order."""
    lent = {usage.device for usage in session.usage()}
    return [uuid for uuid in map(_driver.device_uuid, range(_driver.device_count())) if uuid in lent]


def map_or_publish_arrays(session: Session, name: str, make: Callable[[], Mapping[str, Any]], *, wait: float = 600.0,
                          life: float | None = None, writable: bool = False, **options: Any) -> Region:
    """Maps the region `name` of this session's tenant. If there is none, one of the processes that call this makes and
    publishes it, and the others wait for it: the arrays are made once, and all share them.

    make: answers the arrays, as of publish_arrays. It is called only in the process that is to publish them. If it
    raises, the error is raised here, and another process that waits calls its own `make`.
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
    publication.release()
    return region


def publish_layout(session: Session, name: str, layout: Layout, fill: Fill, *, slice: Slice | None = None,
                   device: str | None = None, wait: float | None = None, sharing: Sharing = Sharing.PRIVATE,
                   readers: Sequence[str] = (), life: float | None = None, keep: bool = False,
                   linger: float | None = None, seal: bool = False) -> Publication:
    """Takes memory for `layout`, has `fill` fill it, writes the layout behind it and publishes it.

    device: UUID, or "host"; None: the first. wait: seconds for memory that others hold, as Slice.grow.
    sharing, readers, life, keep, linger, seal: as Slice.publish.
    Raises as Slice.grow and Slice.publish, and what `fill` raises; then nothing is published, and a slice that was passed
    has its size of before.
    """
    if slice is not None and device not in (None, slice.device):
        raise InvalidArgument(f"the slice is of the device {slice.device}, not {device}")
    with _grown(session, slice, layout.size, device, wait) as (place, offset):
        with _memory.copies(place.ordinal) as memory:
            fill(place.base + offset, memory)
            memory.write(place.base + offset + layout.encoded_at, layout.encoded)
            memory.synchronize()  # a copy from the host may return before the device has it
        version = place.publish(name, offset, layout.size, layout=len(layout.encoded), digest=layout.digest, sharing=sharing,
                                readers=readers, life=life, keep=keep, linger=linger, seal=seal)
    return Publication(session, place, name, version, layout, owns=slice is None)


@contextlib.contextmanager
def _grown(session: Session, slice: Slice | None, size: int, device: str | None,
           wait: float | None) -> Iterator[tuple[Slice, int]]:
    """A slice, `slice` or one of its own, and the offset from which on `size` bytes are committed. Threads that publish into
    one slice take turns. As before when the statement raises."""
    place = slice or session.open_slice(device=device, label="region")  # everybody sees labels, and not the name
    with place._turn():
        offset = place.committed
        try:
            place.grow(offset + size, wait=wait)
            yield place, offset
        except BaseException:
            place.shrink(offset) if slice else place.close()
            raise
