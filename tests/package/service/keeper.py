"""Borrows 64 MiB, fills them, and says after each line of its input whether they are still what they were.

Uses python3-gpumem and the simulated driver that the broker names. Usage: keeper.py DRIVER_FOLDER
"""
import ctypes
import sys

import gpumem

BYTES = 64 * gpumem.MIB
PATTERN = bytes(range(251)) * (BYTES // 251 + 1)


def must(code: int) -> None:
    if code != 0:
        sys.exit(f"the driver answers {code}")


def main() -> int:
    with gpumem.Session.connect(label="keeper") as session, session.open_slice() as memory:
        memory.grow(BYTES, wait=10.0)
        cuda = ctypes.CDLL(f"{sys.argv[1]}/libcuda.so.1")
        context, base = ctypes.c_void_p(), ctypes.c_uint64(memory.base)
        must(cuda.cuInit(0))
        must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        must(cuda.cuCtxSetCurrent(context))
        must(cuda.cuMemcpyHtoD_v2(base, PATTERN, ctypes.c_size_t(BYTES)))
        print("holds", flush=True)
        seen = ctypes.create_string_buffer(BYTES)
        for _ in sys.stdin:
            must(cuda.cuMemcpyDtoH_v2(seen, base, ctypes.c_size_t(BYTES)))
            print("kept" if seen.raw == PATTERN[:BYTES] else "lost", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
