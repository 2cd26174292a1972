"""JAX: its context, its pool, and what a small training step leaves in its memory statistics."""
import os

import stages

# Without this the pool takes three quarters of the device at once.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"


def main() -> None:
    jax = stages.use("jax")
    devices = [device for device in jax.devices() if device.platform in ("gpu", "cuda")]
    if not devices:
        stages.leave("jax sees no GPU (installed without its CUDA plugin?)")
    numpy = jax.numpy
    numpy.zeros(1).block_until_ready()
    stages.stage("context", device=str(devices[0]))
    size = stages.piece()
    held = numpy.ones(size // 4, dtype=numpy.float32).block_until_ready()
    stages.stage("allocated", bytes=size)
    held.delete()
    stages.stage("freed")

    def once() -> None:
        array = numpy.zeros(size // 4, dtype=numpy.float32).block_until_ready()
        array.delete()

    once()
    stages.stage("latencies", latencies={"array, alloc, fill and free": stages.timed(once, size)})

    def loss(weights, batch):  # type: ignore[no-untyped-def]
        return ((numpy.tanh(batch @ weights) - batch) ** 2).mean()

    step = jax.jit(jax.grad(loss))
    weights = numpy.ones((1024, 1024), dtype=numpy.float32)
    trace = []
    for index in range(5):
        weights = weights - 0.01 * step(weights, numpy.ones((256, 1024), dtype=numpy.float32))
        weights.block_until_ready()
        statistics = devices[0].memory_stats() or {}
        trace.append({"step": index, **{key: int(value) for key, value in statistics.items()}})
    stages.stage("trace", trace=trace)


stages.play(main)
