"""JAX as its users run it. GPUMEM_ACCEPTANCE_WAY: `preallocate` (its default: three quarters of the device at once),
`growing` or `platform` (every array is the driver's). Stages: plain.py."""
import os
from typing import Any, List

import plain
import stages

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true" if plain.WAY == "preallocate" else "false"
if plain.WAY == "platform":
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
if plain.AHEAD:
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = str(plain.AHEAD)
WIDTH, BATCH = 1024, 4096  # so many that the device is what a step waits for


def train(jax: Any) -> List[float]:
    numpy = jax.numpy

    def loss(weights: Any, batch: Any) -> Any:
        return ((numpy.tanh(batch @ weights["in"]) @ weights["out"] - batch) ** 2).mean()

    def step(weights: Any, batch: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(weights, batch)
        return value, jax.tree_util.tree_map(lambda one, slope: one - 0.05 * slope, weights, slopes)

    compiled = jax.jit(step)
    keys = jax.random.split(jax.random.PRNGKey(20), 2)
    weights = {"in": jax.random.normal(keys[0], (WIDTH, 4 * WIDTH)) * 0.02,
               "out": jax.random.normal(keys[1], (4 * WIDTH, WIDTH)) * 0.02}
    count = 0

    def next_step() -> float:
        nonlocal weights, count
        batch = jax.random.normal(jax.random.PRNGKey(count), (BATCH, WIDTH))
        value, weights = compiled(weights, batch)
        count += 1
        return float(value)

    return plain.train(next_step)


def refused(jax: Any, total: int) -> str:
    try:
        jax.numpy.ones((total,), dtype=jax.numpy.uint8).block_until_ready()
        return "nothing: it got as much as the device has"
    except Exception as error:  # its type has had several names
        if "RESOURCE_EXHAUSTED" not in str(error):
            return f"{type(error).__name__}: {error}"[:300]
    right = float(jax.numpy.ones(1 << 20).sum()) == 1 << 20
    return "" if right else "the device does not compute any more"


def main() -> None:
    jax = stages.use("jax")
    devices = [device for device in jax.devices() if device.platform in ("gpu", "cuda")]
    if not devices:
        stages.leave("jax sees no GPU (installed without its CUDA plugin?)")
    jax.numpy.zeros(1).block_until_ready()
    # JAX reports its own limit, three quarters of the device's total; not the total.
    limit = (devices[0].memory_stats() or {}).get("bytes_limit")
    stages.stage("context", total=None if limit is None else int(limit) * 4 // 3, seen=None)
    stages.stage("trained", losses=train(jax), correct=True)
    stages.stage("refused", wrong=refused(jax, stages.budget() * 4))


stages.play(main)
