"""CuPy as its users run it. GPUMEM_ACCEPTANCE_WAY: `pool` (its default) or `async` (the driver's pools). Stages:
plain.py."""
from typing import Any, List

import plain
import stages

WIDTH, BATCH = 2048, 4096  # so many that the device is what a step waits for


def train(cupy: Any) -> List[float]:
    """Linear regression by gradient descent."""
    draws = cupy.random.RandomState(20)
    wanted = draws.standard_normal((WIDTH, WIDTH), dtype=cupy.float32)
    weights = cupy.zeros((WIDTH, WIDTH), dtype=cupy.float32)

    def step() -> float:
        nonlocal weights
        batch = draws.standard_normal((BATCH, WIDTH), dtype=cupy.float32)
        error = batch @ weights - batch @ wanted
        weights = weights - (0.1 / BATCH) * (batch.T @ error)
        return float((error ** 2).mean())

    return plain.train(step)


def refused(cupy: Any, total: int) -> str:
    try:
        cupy.empty(total, dtype=cupy.uint8)
        return "nothing: it got as much as the device has"
    except cupy.cuda.memory.OutOfMemoryError:
        pass
    except cupy.cuda.runtime.CUDARuntimeError as error:  # so do the driver's pools
        if "MemoryAllocation" not in str(error):
            return str(error)[:300]
    return "" if int(cupy.ones(1 << 20, dtype=cupy.int32).sum()) == 1 << 20 else "the device does not compute any more"


def main() -> None:
    cupy = stages.use("cupy")
    cupy.cuda.Device(0).use()
    cupy.cuda.runtime.free(0)
    if plain.WAY == "async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    total = int(cupy.cuda.runtime.memGetInfo()[1])
    stages.stage("context", total=total, seen=int(cupy.cuda.runtime.getDeviceProperties(0)["totalGlobalMem"]))
    stages.stage("trained", losses=train(cupy), correct=True)
    stages.stage("refused", wrong=refused(cupy, total))


stages.play(main)
