"""Handles: each is one object of one process."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import NoReturn


class Handle:
    """A handle of the library, or what frees or unmaps by one. A copy would free the same memory once more, and the handle
    means nothing in another process: copy.copy, copy.deepcopy and pickle raise TypeError."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a gpumem.{type(self).__name__} cannot be copied or passed to another process: connect there, and share "
                        "the memory by the name of a region (publish_arrays, map_region) or by a handle (export_handle, "
                        "import_handle)")


class Remainder:
    """A closed handle leaves some bytes, since late calls by it are errors. They are freed when nobody refers to this."""

    __slots__ = ("__weakref__",)

    def __init__(self, free: Callable[[int], None], handle: int):
        weakref.finalize(self, free, handle).atexit = False
