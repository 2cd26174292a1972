"""CuPy on its own pool, on the driver's (cudaMallocAsync), and on gpumem, in one process: the same array job
on each, and pairs of allocation and free. Stages: `imported`, `context`, `worked` {correct}, `pairs` {allocators},
`end`."""
from typing import Any, Callable, Dict

import pairs
import stages


def correct(cupy: Any) -> bool:
    """Whether array work on two streams, with arrays coming and going, ends with what the host computes."""
    import numpy
    side = cupy.cuda.Stream(non_blocking=True)
    numbers = numpy.arange(200_003, dtype=numpy.float64)
    total = expected = 0.0
    for step in range(20):
        with side if step % 2 else cupy.cuda.Stream.null:
            there = cupy.asarray(numbers[: 1000 + step * 9973])
            total += float((there * 2 + step).sum())
        expected += float((numbers[: 1000 + step * 9973] * 2 + step).sum())
    cupy.cuda.Device().synchronize()
    return abs(total - expected) <= 1e-9 * expected


def allocators(cupy: Any, gpumem: Any, ours: Any) -> Dict[str, Callable[[int], Any]]:
    found = {"pool": cupy.get_default_memory_pool().malloc, "gpumem": gpumem.cupy.allocator(ours)}
    try:
        found["cudaMallocAsync"] = cupy.cuda.MemoryAsyncPool().malloc
    except Exception as error:  # a driver without pools
        stages.stage("no_pools", why=f"{type(error).__name__}: {error}"[:300])
    return found


def main() -> None:
    cupy = stages.use("cupy")
    import gpumem.cupy
    cupy.cuda.Device(0).use()
    cupy.cuda.runtime.free(0)
    stages.stage("context", runtime=int(cupy.cuda.runtime.runtimeGetVersion()))
    with gpumem.Session.connect(label="cupy") as session:
        ours = session.open_allocator(wait=5.0)
        answers, timed = {}, {}
        for name, allocate in allocators(cupy, gpumem, ours).items():
            cupy.cuda.set_allocator(allocate)
            answers[name] = correct(cupy)
            timed[name] = pairs.times(allocate, cupy.cuda.Device(0).synchronize)
        cupy.cuda.set_allocator(gpumem.cupy.allocator(ours))
        held = cupy.ones(stages.piece(), dtype=cupy.uint8)
        answers["held"] = int(held.sum()) == held.size
        stages.stage("worked", correct=answers, bytes=held.nbytes)
        del held
        cupy.cuda.set_allocator(None)
        cupy.cuda.Device(0).synchronize()
        stages.stage("pairs", allocators=timed)
        stages.stage("statistics", **vars(ours.statistics()))
        ours.destroy()


stages.play(main)
