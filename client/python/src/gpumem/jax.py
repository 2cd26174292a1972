"""JAX within a slice, on regions, and with the broker's words.

    import gpumem.jax
    gpumem.jax.configure(session)                                       # before JAX starts its devices
    with gpumem.jax.publish_tree(session, "weights", parameters):       # one process
        ...
    parameters = gpumem.jax.load_tree(session.map_region("weights"), shapes)    # others: no copy, one charge

Memory that JAX allocates itself is the slice's under the drop-in driver (`gpumem run`).
"""
from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from typing import Any

from . import _driver
from ._framework import RESERVE, Kind, arrays_of, device_limits, explained, matching
from .arrays import Array
from .errors import FailedPrecondition, InvalidArgument
from .publish import Publication, publish_arrays
from .region import Region
from .session import Session

# JAX refuses to start when both are set; older ones know the first alone.
FRACTION, NEWER_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


def configure(session: Session, *, limit: int | Mapping[str, int] = 0, reserve: int = RESERVE) -> dict[str, int]:
    """Has JAX take of each GPU no more than the process's slice may hold, and grow as needed: sets the fraction of the
    device's memory in the environment, where JAX reads it when it starts its devices. JAX has one fraction for all
    devices, so it is that of the device with the least. Answers what JAX may take, in bytes, by the device's UUID.

    limit, reserve: as of gpumem.tensorflow.configure. The limit of a device does not depend on what is free now.
    Raises FailedPrecondition (JAX has started its devices already; the process sees a GPU that the broker does not
    lend), InvalidArgument (nothing is left).
    """
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and bridge.backends_are_initialized():
        raise FailedPrecondition("JAX has started its devices already; call gpumem.jax.configure() at the program's "
                                 "beginning, before the first array and before jax.devices()")
    devices = device_limits(session, _driver.device_count(), "this process", limit, reserve)
    millionths = min((math.floor(1_000_000 * may / total) for _, may, total in devices), default=0)
    if devices:
        name = NEWER_FRACTION if os.environ.get(NEWER_FRACTION) else FRACTION
        os.environ.pop(FRACTION, None)
        os.environ[name] = f"{millionths / 1_000_000:.6f}"
    os.environ[PREALLOCATE] = "false"
    return {uuid: total * millionths // 1_000_000 for uuid, _, total in devices}


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

    return {name: taken(array) for name, array in arrays_of(region, options).items()}


def publish_tree(session: Session, name: str, tree: Any, **options: Any) -> Publication:
    """Publishes the leaves of a pytree for load_tree, by their key paths: `{"layers": [{"kernel": ...}]}` has the array
    `layers/0/kernel`. Leaves are arrays and numbers.

    options: of gpumem.publish_arrays.
    Raises InvalidArgument (two leaves of one name; a tree that is one leaf), others as gpumem.publish_arrays.
    """
    import jax.numpy

    return publish_arrays(session, name, {one: jax.numpy.asarray(leaf) if isinstance(leaf, (int, float, complex)) else leaf
                                          for one, leaf in _leaves(tree).items()}, **options)


def load_tree(region: Region | Mapping[str, Array], tree: Any, **options: Any) -> Any:
    """A pytree like `tree`, whose leaves are the region's arrays, without a copy. As of `arrays`, do not donate them.

    tree: of arrays, numbers, or shapes: jax.eval_shape(make) makes no arrays.
    options: of Region.arrays.
    Raises StaleLayout (the region's arrays are not this tree's; the words say which), others as `arrays`.
    """
    import jax

    leaves = _leaves(tree)
    found = arrays(matching({name: _kind(leaf) for name, leaf in leaves.items()}, arrays_of(region, options)))
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(tree), [found[name] for name in leaves])


def explain(error: BaseException, session: Session) -> str:
    """JAX's message in an error of RESOURCE_EXHAUSTED, with the broker's figures of each device. Raises Unavailable."""
    return explained(str(error), session)


def _leaves(tree: Any) -> dict[str, Any]:
    """By their key paths, in the tree's order."""
    import jax

    found: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in found:
            raise InvalidArgument(f"two leaves of the tree are called {name!r}; rename a key")
        found[name] = leaf
    return found


def _kind(leaf: Any) -> Kind:
    import jax.numpy

    dtype = getattr(leaf, "dtype", None)
    return tuple(getattr(leaf, "shape", ())), str(jax.numpy.result_type(leaf) if dtype is None else dtype)
