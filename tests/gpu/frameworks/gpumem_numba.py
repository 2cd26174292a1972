"""Numba on gpumem, by the environment alone (NUMBA_CUDA_MEMORY_MANAGER=gpumem.numba): arrays, and a kernel where this
machine can compile one. Stages: `imported`, `context`, `worked` {correct, kernel}, `end`."""
import os

import stages

os.environ["NUMBA_CUDA_MEMORY_MANAGER"] = "gpumem.numba"


def kernel_is_right(cuda, numpy) -> bool:  # type: ignore[no-untyped-def]
    @cuda.jit
    def double(numbers):  # type: ignore[no-untyped-def]
        index = cuda.grid(1)
        if index < numbers.size:
            numbers[index] *= 2

    there = cuda.to_device(numpy.arange(100_000))
    double[(there.size + 255) // 256, 256](there)
    return bool((there.copy_to_host() == 2 * numpy.arange(100_000)).all())


def main() -> None:
    stages.use("numba")
    import numpy
    from numba import cuda
    try:
        found = len(cuda.gpus)
    except Exception as error:  # no driver that it can use
        stages.leave(f"numba sees no GPU: {type(error).__name__}: {error}"[:300])
    if not found:
        stages.leave("numba sees no GPU")
    stages.stage("context", manager=type(cuda.current_context().memory_manager).__name__)
    try:
        kernel = "right" if kernel_is_right(cuda, numpy) else "wrong"
    except Exception as error:  # no compiler of kernels here
        kernel = f"not run: {type(error).__name__}: {error}"[:200]
    held = cuda.to_device(numpy.full(stages.piece(), 7, dtype=numpy.uint8))
    correct = bool((held.copy_to_host() == 7).all()) and kernel != "wrong"
    stages.stage("worked", correct=correct, kernel=kernel, bytes=held.nbytes)


stages.play(main)
