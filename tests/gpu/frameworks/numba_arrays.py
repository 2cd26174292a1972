"""Numba: its context and its arrays."""
import stages


def main() -> None:
    stages.use("numba")
    from numba import cuda
    import numpy
    try:
        cuda.current_context()
    except Exception as error:  # no driver that it can use
        stages.leave(f"numba sees no GPU: {type(error).__name__}: {error}"[:300])
    stages.stage("context")
    size = stages.piece()
    held = cuda.device_array(size, dtype=numpy.uint8)
    cuda.synchronize()
    stages.stage("allocated", bytes=size)
    del held
    cuda.current_context().memory_manager.deallocations.clear()
    stages.stage("freed")

    def once() -> None:
        cuda.device_array(size, dtype=numpy.uint8)
        cuda.current_context().memory_manager.deallocations.clear()

    stages.stage("latencies", latencies={"device_array, alloc and free": stages.timed(once, size)})


stages.play(main)
