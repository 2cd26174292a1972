"""Numba: its context and its arrays."""
import stages


def main() -> None:
    numba = stages.use("numba")
    from numba import cuda
    import numpy
    if not cuda.is_available():
        stages.leave(f"numba {numba.__version__} sees no GPU")
    cuda.current_context()
    stages.stage("context")
    size = stages.piece()
    held = cuda.device_array(size, dtype=numpy.uint8)
    cuda.synchronize()
    stages.stage("allocated", bytes=size)
    del held
    cuda.current_context().deallocations.clear()
    stages.stage("freed")

    def once() -> None:
        cuda.device_array(size, dtype=numpy.uint8)
        cuda.current_context().deallocations.clear()

    stages.stage("latencies", latencies={"device_array, alloc and free": stages.timed(once, size)})


stages.play(main)
