"""JAX's arrays on regions.

    weights = gpumem.jax.arrays(session.map_region("weights"))
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .arrays import Array
from .errors import InvalidArgument
from .region import Region


def arrays(region: Region | Mapping[str, Array], **options: Any) -> dict[str, Any]:
    """The region's arrays as jax.Arrays, by name, without a copy. Each keeps the region mapped. Do not donate them to a
    function (`donate_argnums`): it would write to the region, and fault.

    options: of Region.arrays.
    Raises InvalidArgument (a type of elements that JAX does not take), ImportError, others as Region.arrays.
    """
    import jax.dlpack

    def taken(array: Array) -> Any:
        try:
            return jax.dlpack.from_dlpack(array)
        except (RuntimeError, TypeError, ValueError) as error:
            raise InvalidArgument(f"JAX takes no array {array.name!r} of {array.dtype} {array.shape}: {error}") from error

    found = region.arrays(**options) if isinstance(region, Region) else region
    return {name: taken(array) for name, array in found.items()}
