"""Functions for all frameworks: a limit that fits the slice, a model's arrays by name, the broker's figures in an
error."""
from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from typing import Any

from . import _driver
from .arrays import PRIVATE, Array
from .errors import FailedPrecondition, InvalidArgument, StaleLayout
from .region import Region
from .session import DeviceUsage, Session

# Bytes of a slice that a framework leaves to cuDNN, cuBLAS and others, which allocate beside it; as `gpumem run` has it.
RESERVE = 128 << 20
MIB = 1 << 20

# Shape and type of the elements.
Kind = tuple[tuple[int, ...], str]


def memory_limit(usage: DeviceUsage, total: int, *, limit: int = 0, reserve: int = RESERVE) -> int:
    """The memory that a framework may take of a device, in bytes: the least of `limit` (0: none), the tenant's limit,
    the pool and `total`, which is the slice's limit under the drop-in driver; less `reserve`, and whole MiB. It does
    not depend on what is free now. Raises InvalidArgument: nothing is left."""
    may = min(figure for figure in (limit, usage.limit, usage.pool, total) if figure) - reserve
    if may < MIB:
        raise InvalidArgument(f"a slice of {may + reserve} bytes leaves nothing for the framework when {reserve} are reserved")
    return may // MIB * MIB


def device_limits(session: Session, count: int, framework: str, limit: int | Mapping[str, int],
                  reserve: int) -> list[tuple[str, int, int]]:
    """(UUID, memory_limit, total bytes) of the process's first `count` devices. `limit`: bytes of each, or by the UUID.
    Raises FailedPrecondition (a device that the broker does not lend), as memory_limit."""
    usages, found = {usage.device: usage for usage in session.usage()}, []
    for ordinal in range(count):
        uuid, total = _driver.device_uuid(ordinal), _driver.device_total(ordinal)
        if uuid not in usages:
            raise FailedPrecondition(f"{framework} sees the device {uuid}, which the broker does not lend; name those "
                                     "that it does in CUDA_VISIBLE_DEVICES")
        own = limit.get(uuid, 0) if isinstance(limit, Mapping) else limit
        found.append((uuid, memory_limit(usages[uuid], total, limit=own, reserve=reserve), total))
    return found


def explained(said: str, session: Session) -> str:
    """A framework's message on a lack of memory, with the broker's figures of each device. Raises Unavailable."""
    lines = [f"gpu{place}: tenant {session.tenant} has {_mib(usage.charged)} of its limit of "
             f"{_mib(usage.limit)}, and is guaranteed {_mib(usage.guarantee)}; {_mib(usage.available)} could be had now, "
             f"{_mib(usage.free)} of {_mib(usage.pool)} are charged to nobody" for place, usage in enumerate(session.usage())]
    return "\n".join([said.strip(), *lines, "`gpumem ps` lists who holds what, `gpumem why` says why a request waits."])


def _mib(size: int) -> str:
    return f"{size // MIB} MiB"


def with_private(options: Mapping[str, Any], written: Iterable[str]) -> dict[str, Any]:
    """Options of publish_arrays. Unless they name the private arrays, these are PRIVATE and those that are `written`."""
    return {"private": (*PRIVATE, *map(glob.escape, written)), **options}


def arrays_of(region: Region | Mapping[str, Array], options: dict[str, Any]) -> Mapping[str, Array]:
    return region.arrays(**options) if isinstance(region, Region) else region


def matching(wanted: Mapping[str, Kind], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The array of each name. Raises StaleLayout: it is not there, or of another kind."""
    for name, kind in wanted.items():
        if name not in arrays:
            raise StaleLayout(f"the region has no array {name!r}, and {len(arrays)} arrays for {len(wanted)} of the model")
        check_kind(name, kind, arrays[name])
    return {name: arrays[name] for name in wanted}


def check_kind(name: str, kind: Kind, array: Array) -> None:
    """Raises StaleLayout."""
    if (array.shape, array.dtype) != kind:
        raise StaleLayout(f"array {array.name!r} is {array.dtype} {array.shape}; the model's {name!r} is {kind[1]} "
                          f"{kind[0]}: the region is another model's")
