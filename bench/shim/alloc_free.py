#!/usr/bin/env python3
"""How long cuMemAlloc and cuMemFree of one block take, by size, of whichever libcuda.so.1 the loader finds: the median of 300, in
microseconds. Run it by itself and by `gpumem run`, in turns; the ratios are the result."""
import ctypes
import statistics
import time

SIZES = (4 << 10, 1 << 20, 2 << 20, 64 << 20, 512 << 20)
ROUNDS, WARM_UP = 300, 20


def must(name: str, *arguments: object) -> None:
    status = getattr(DRIVER, name)(*arguments)
    if status:
        raise SystemExit(f"{name} answers {status}")


def pair(size: int) -> int:
    """Nanoseconds."""
    address = ctypes.c_uint64()
    began = time.perf_counter_ns()
    must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    must("cuMemFree_v2", address)
    return time.perf_counter_ns() - began


try:
    DRIVER = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    raise SystemExit(f"{error}: run it where a driver is, or by `gpumem-sim run`") from None
context = ctypes.c_void_p()
must("cuInit", 0)
must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
must("cuCtxSetCurrent", context)
for size in SIZES:
    times = [pair(size) for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
    print(f"{size >> 10:8} KiB {statistics.median(times) / 1000:10.2f} us")
