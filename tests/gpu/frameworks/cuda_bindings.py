"""NVIDIA's own bindings: the driver's allocators without a framework around them."""
import importlib.util
from types import ModuleType
from typing import Any

import stages


def bindings() -> ModuleType:
    """`cuda.bindings.driver`, or `cuda.cuda` of older releases."""
    try:
        new = importlib.util.find_spec("cuda.bindings.driver") is not None
    except ModuleNotFoundError:
        new = False
    return stages.use("cuda.bindings.driver" if new else "cuda.cuda")


def main() -> None:
    driver: Any = bindings()

    def call(name: str, *arguments: Any) -> Any:
        result, *values = getattr(driver, name)(*arguments)
        if int(result) != 0:
            raise RuntimeError(f"{name}: {result}")
        return values[0] if values else None

    call("cuInit", 0)
    device = call("cuDeviceGet", 0)
    call("cuCtxPushCurrent", call("cuDevicePrimaryCtxRetain", device))
    stages.stage("context")
    size = stages.piece()
    held = call("cuMemAlloc", size)
    stages.stage("allocated", bytes=size)
    call("cuMemFree", held)
    stages.stage("freed")
    stream = driver.CUstream(0)

    def plain() -> None:
        call("cuMemFree", call("cuMemAlloc", size))

    def ordered() -> None:
        call("cuMemFreeAsync", call("cuMemAllocAsync", size, stream), stream)
        call("cuStreamSynchronize", stream)

    stages.stage("latencies", latencies={"cuMemAlloc and cuMemFree": stages.timed(plain, size),
                                         "cuMemAllocAsync, cuMemFreeAsync, synchronize": stages.timed(ordered, size)})


stages.play(main)
