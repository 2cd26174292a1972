"""JAX: every allocation of a small training, as XLA's allocator logs it. It takes no allocator from outside, so there
is nothing else to compare. Stages: `imported`, `context`, `log` {lines}, `end`."""
import os
import tempfile

import stages

os.environ.update(XLA_PYTHON_CLIENT_PREALLOCATE="false", TF_CPP_MIN_LOG_LEVEL="0", TF_CPP_VMODULE="bfc_allocator=3")
STEPS = 5


def train(jax) -> None:  # type: ignore[no-untyped-def]
    numpy = jax.numpy

    def loss(weights, batch):  # type: ignore[no-untyped-def]
        hidden = batch
        for layer in weights:
            hidden = numpy.tanh(hidden @ layer)
        return ((hidden - batch) ** 2).mean()

    step = jax.jit(jax.grad(loss))
    weights = [numpy.ones((1024, 1024), dtype=numpy.float32) for _ in range(4)]
    for index in range(STEPS):
        batch = numpy.ones((128 + 64 * (index % 3), 1024), dtype=numpy.float32)
        weights = [layer - 0.01 * slope for layer, slope in zip(weights, step(weights, batch))]
        jax.block_until_ready(weights)


def main() -> None:
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)  # the log goes to standard error
        try:
            jax = stages.use("jax")
            if not any(device.platform in ("gpu", "cuda") for device in jax.devices()):
                stages.leave("jax sees no GPU (installed without its CUDA plugin?)")
            stages.stage("context")
            train(jax)
        finally:
            os.dup2(kept, 2)
        log.seek(0)
        lines = [line.strip() for line in log if "llocateRaw" in line]
    stages.stage("log", lines=lines[:40000])


stages.play(main)
