"""Arrays that one process changes and others read whole, whenever the writer dies.

    with gpumem.DoubleBuffer.publish(session, "state", {"table": table}):
        ...
    with gpumem.DoubleBuffer(session.map_region("state", writable=True)).write() as arrays:     # the writer
        torch.from_dlpack(arrays["table"]).copy_(new)
    generation, table = gpumem.DoubleBuffer(session.map_region("state")).read(              # a reader
        lambda arrays: torch.from_dlpack(arrays["table"]).clone())

The region has the arrays twice. Its generation says which half is current: the even one or the odd one. The writer fills the
other half and commits.
"""
from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from . import _driver
from .arrays import Array
from .errors import Code, FailedPrecondition, GpumemError, InvalidArgument
from .publish import Publication, publish_arrays
from .region import Region
from .session import Session

Value = TypeVar("Value")


class DoubleBuffer:
    """The two halves of a region that `publish` has made.

    There is one writer at a time; who that is, the processes settle. A writer that dies before it has committed changes
    nothing for readers, and the next one begins anew.
    """

    def __init__(self, region: Region):
        """`region`: mapped writable by who writes. It is kept mapped. Raises InvalidArgument (no region of two halves), others
        as Region.arrays."""
        arrays = region.arrays(private=())  # copies would not change
        self._region = region
        self._halves = tuple({name[len(prefix):]: array for name, array in arrays.items() if name.startswith(prefix)}
                             for prefix in ("0/", "1/"))
        even, odd = ({name: (one.dtype, one.shape) for name, one in half.items()} for half in self._halves)
        if even != odd or len(arrays) != 2 * len(even):
            raise InvalidArgument(f"region {region.name!r} has no two halves of the same arrays: gpumem.DoubleBuffer.publish "
                                  "makes one")

    @staticmethod
    def publish(session: Session, name: str, arrays: Mapping[str, Any], **options: Any) -> Publication:
        """Publishes a region whose halves both have these arrays. It takes twice their memory.

        options: of gpumem.publish_arrays, but for `private`, `array_metadata` and `deduplicate`. Raises as that.
        """
        return publish_arrays(session, name, {f"{half}/{one}": array for half in (0, 1) for one, array in arrays.items()},
                              private=(), **options)

    @contextlib.contextmanager
    def write(self) -> Iterator[dict[str, Array]]:
        """The arrays of the half that is not current, by name, to be filled: all of them, for they have the value before
        the current one. At the end of the statement the device's work is waited for, and the half is current. What is
        raised within the statement leaves all as it was.

        Raises FailedPrecondition (not mapped writable; another writer has committed meanwhile), others as Region.commit.
        """
        if any(array.read_only for half in self._halves for array in half.values()):
            raise FailedPrecondition(f"region {self._region.name!r} is mapped for reading; who writes maps it writable")
        before = self._region.generation()
        yield dict(self._half(before + 1))
        self._synchronize()
        if self._region.commit() != before + 1:
            raise FailedPrecondition(f"another writer of region {self._region.name!r} has committed meanwhile, and the value "
                                     "may be of both: one writes at a time")

    def read(self, take: Callable[[Mapping[str, Array]], Value], *, wait: float = 10.0) -> tuple[int, Value]:
        """Has `take` read the arrays of the current half, by name, again if a writer has meanwhile committed a newer one.
        Answers the generation and what `take` has answered of it, which is a copy, or computed: the arrays themselves
        change with the next generation but one.

        wait: seconds within which a reading must succeed; a first one is made always.
        Raises GpumemError (ABORTED: writers commit more often than `take` can read), others as Region.generation, and what
        `take` raises.
        """
        deadline = time.monotonic() + wait
        generation = self._region.generation()
        while True:
            value = take(self._half(generation))
            self._synchronize()
            now = self._region.generation()
            if now == generation:
                return generation, value
            if time.monotonic() >= deadline:
                raise GpumemError(f"region {self._region.name!r} has changed while it was read, each time within {wait} s",
                                  Code.ABORTED)
            generation = now

    def _half(self, generation: int) -> dict[str, Array]:
        return self._halves[generation % 2]

    def _synchronize(self) -> None:
        with _driver.current(self._region.ordinal):
            _driver.synchronize()
