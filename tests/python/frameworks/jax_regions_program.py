"""jax_regions_program.py ROLE: a JAX process. Prints what it found as a line of JSON.

arrays      computes with the arrays of the region `model`, in place
tree        publishes a tree, loads it again, and asks for what is refused
settings    sets what JAX may take, and says what JAX makes of that
"""
import hashlib
import json
import os
import sys

import gpumem
import gpumem.jax
import jax
import jax.numpy as jnp
import numpy as np
from jaxlib.xla_client import generate_pjrt_gpu_plugin_options

TREE = {"layers": [{"kernel": np.arange(12, dtype="float32").reshape(3, 4)}, {"kernel": np.ones(5, dtype="float16")}],
        "step": 7}


def sha256(array) -> str:
    return hashlib.sha256(np.asarray(array).tobytes()).hexdigest()


def by_arrays(session: gpumem.Session) -> dict:
    with session.map_region("model") as region:
        shown = region.arrays()
        arrays = gpumem.jax.arrays(shown)
    computed = jnp.tanh(arrays["input"] @ arrays["kernel"] + arrays["bias"].astype("float32"))
    ordinary = jnp.tanh(jnp.array(np.array(shown["input"].numpy())) @ jnp.array(np.array(shown["kernel"].numpy()))
                        + jnp.array(np.array(shown["bias"].numpy())).astype("float32"))
    in_place = [name for name, array in arrays.items() if array.unsafe_buffer_pointer() == shown[name].address]
    return {"computed": sha256(computed), "ordinary": sha256(ordinary), "in_place": in_place,
            "dtypes": {name: str(array.dtype) for name, array in arrays.items()}}


def refused(work) -> str:
    try:
        work()
    except gpumem.GpumemError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def by_tree(session: gpumem.Session) -> dict:
    shapes = jax.eval_shape(lambda: jax.tree_util.tree_map(jnp.asarray, TREE))
    other = {**TREE, "layers": [TREE["layers"][0], {"kernel": np.ones(5, dtype="float32")}]}
    with gpumem.jax.publish_tree(session, "tree", TREE) as publication, session.map_region("tree") as region:
        shown = region.arrays()
        loaded = [gpumem.jax.load_tree(shown, like) for like in (TREE, shapes)]
        same = [jax.tree_util.tree_map(lambda one, mine: bool((one == mine).all()), tree, TREE) for tree in loaded]
        in_place = loaded[0]["layers"][0]["kernel"].unsafe_buffer_pointer() == shown["layers/0/kernel"].address
        return {"names": [array.name for array in publication.layout.arrays], "same": same, "in_place": in_place,
                "other": refused(lambda: gpumem.jax.load_tree(shown, other)),
                "more": refused(lambda: gpumem.jax.load_tree(shown, {**TREE, "more": 1})),
                "twice": refused(lambda: gpumem.jax.publish_tree(session, "twice", {"a/b": 1, "a": {"b": 2}})),
                "leaf": refused(lambda: gpumem.jax.publish_tree(session, "leaf", TREE["step"])),
                "explained": gpumem.jax.explain(RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), session)}


def by_settings(session: gpumem.Session) -> dict:
    second = session.usage()[1].device
    limits = gpumem.jax.configure(session, limit={second: 100 << 20}, reserve=16 << 20)
    options = [generate_pjrt_gpu_plugin_options()]
    os.environ["XLA_CLIENT_MEM_FRACTION"] = "0.9"
    gpumem.jax.configure(session)
    options.append(generate_pjrt_gpu_plugin_options())
    little = refused(lambda: gpumem.jax.configure(session, limit=64 << 20))
    jax.devices()
    return {"limits": limits, "fractions": [one["memory_fraction"] for one in options],
            "preallocate": [one["preallocate"] for one in options], "little": little,
            "late": refused(lambda: gpumem.jax.configure(session))}


with gpumem.Session.connect(label="jax") as connected:
    print(json.dumps({"arrays": by_arrays, "tree": by_tree, "settings": by_settings}[sys.argv[1]](connected)))
