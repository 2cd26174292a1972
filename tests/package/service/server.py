#!/usr/bin/python3
"""A service that knows nothing of gpumem, and takes all that it can get of a GPU by the driver's own calls.

Writes to STATE_DIRECTORY/said: the device's total and the amount that it could allocate, in MiB, whether the variables
of sd_watchdog_enabled(3) and sd_listen_fds(3) name this process, and each SIGTERM. The first SIGTERM ends it.
"""
import ctypes
import os
import signal
import socket
import sys
import time

MIB = 1 << 20
PIECE = 64 * MIB
OUT_OF_MEMORY = 2


def must(code: int) -> None:
    if code != 0:
        sys.exit(f"the driver answers {code}")


def notify(words: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(words.encode(), address.replace("@", "\0", 1))


def is_meant(name: str) -> bool:
    return os.environ.get(name) == str(os.getpid())


def main() -> int:
    out = open(os.environ["STATE_DIRECTORY"] + "/said", "a", buffering=1, encoding="utf-8")
    ends = 0

    def on_end(*_: object) -> None:
        nonlocal ends
        ends += 1
        print("SIGTERM", ends, file=out)

    signal.signal(signal.SIGTERM, on_end)
    cuda = ctypes.CDLL("libcuda.so.1")
    context, total, free = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    must(cuda.cuInit(0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(cuda.cuCtxSetCurrent(context))
    must(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    print("total", total.value // MIB, file=out)
    held = 0
    while (code := cuda.cuMemAlloc_v2(ctypes.byref(at := ctypes.c_uint64()), ctypes.c_size_t(PIECE))) == 0:
        assert at.value
        held += PIECE
    if code != OUT_OF_MEMORY:
        must(code)
    print("held", held // MIB, file=out)
    print("watchdog", is_meant("WATCHDOG_PID"), file=out)
    print("sockets", os.environ.get("LISTEN_FDS") if is_meant("LISTEN_PID") else "none", file=out)
    notify("READY=1")
    while not ends:
        if is_meant("WATCHDOG_PID"):
            notify("WATCHDOG=1")
        time.sleep(0.1)
    time.sleep(0.5)  # a second SIGTERM would be told of, too
    print("end", file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
