"""jax_regions_program.py: a JAX process on the region `model`. Prints what it found as a line of JSON."""
import hashlib
import json

import gpumem
import gpumem.jax
import jax.numpy as jnp
import numpy as np

with gpumem.Session.connect(label="jax") as session:
    with session.map_region("model") as region:
        shown = region.arrays()
        arrays = gpumem.jax.arrays(shown)
    computed = jnp.tanh(arrays["input"] @ arrays["kernel"] + arrays["bias"].astype("float32"))
    ordinary = jnp.tanh(jnp.array(np.array(shown["input"].numpy())) @ jnp.array(np.array(shown["kernel"].numpy()))
                        + jnp.array(np.array(shown["bias"].numpy())).astype("float32"))
    in_place = [name for name, array in arrays.items() if array.unsafe_buffer_pointer() == shown[name].address]
    print(json.dumps({"computed": hashlib.sha256(np.asarray(computed).tobytes()).hexdigest(),
                      "ordinary": hashlib.sha256(np.asarray(ordinary).tobytes()).hexdigest(), "in_place": in_place,
                      "dtypes": {name: str(array.dtype) for name, array in arrays.items()}}))
