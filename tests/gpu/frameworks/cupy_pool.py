"""CuPy: its context, its own pool, and the driver's (cudaMallocAsync)."""
import stages


def main() -> None:
    cupy = stages.use("cupy")
    cupy.cuda.Device(0).use()
    cupy.cuda.runtime.free(0)
    stages.stage("context", runtime=int(cupy.cuda.runtime.runtimeGetVersion()))
    size = stages.piece()
    pool = cupy.get_default_memory_pool()
    held = cupy.ones(size, dtype=cupy.uint8)
    cupy.cuda.Device(0).synchronize()
    stages.stage("allocated", bytes=size, pool=int(pool.total_bytes()))
    del held
    pool.free_all_blocks()
    stages.stage("freed")

    def pooled() -> None:
        pool.malloc(size)

    def plain() -> None:
        cupy.cuda.runtime.free(cupy.cuda.runtime.malloc(size))

    def ordered() -> None:
        cupy.cuda.runtime.freeAsync(cupy.cuda.runtime.mallocAsync(size, 0), 0)
        cupy.cuda.runtime.streamSynchronize(0)

    pooled()
    found = {"pool, alloc and free": stages.timed(pooled, size), "cudaMalloc and cudaFree": stages.timed(plain, size)}
    pool.free_all_blocks()
    try:
        found["cudaMallocAsync, cudaFreeAsync, synchronize"] = stages.timed(ordered, size)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        stages.stage("no_pools", why=str(error))
    stages.stage("latencies", latencies=found)


stages.play(main)
