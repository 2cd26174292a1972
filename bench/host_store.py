#!/usr/bin/env python3
"""The cost of a buffer of the host store, against memory that a process takes by itself.

    bench/host_store.py [--build build/release] [--mib 1024] [--rounds 5]

Starts a broker on a simulated device. In turns, each in a fresh process: a buffer of the store (pageable), and an anonymous mapping
of the same size that one thread faults in. Prints the median ratio. Then times pairs of allocation and free of a buffer that the
process has had before, against malloc and free, all called through ctypes.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from running_broker import running_broker

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIRST = """
import mmap, sys, time
size = int(sys.argv[1]) << 20
if sys.argv[2] == "store":
    import gpumem
    with gpumem.Session.connect() as session, session.open_host(pinned=False) as host:
        begun = time.perf_counter()
        buffer = host.buffer(size)
        print(time.perf_counter() - begun)
        buffer.free()
else:
    begun = time.perf_counter()
    own = mmap.mmap(-1, size)
    own.madvise(23)  # MADV_POPULATE_WRITE
    print(time.perf_counter() - begun)
"""
PAIRS = """
import ctypes, sys, time
import gpumem
from gpumem._library import load
COUNT, SIZE = 100_000, 1 << 20
libc, library = ctypes.CDLL(None), load()
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
with gpumem.Session.connect() as session, session.open_host(pinned=False) as host:
    handle, address = host._allocator.handle, ctypes.c_uint64()
    place = ctypes.byref(address)
    def own():
        begun = time.perf_counter()
        for _ in range(COUNT):
            library.gpumem_allocate(handle, SIZE, None, place)
            library.gpumem_deallocate(handle, address, SIZE, None)
        return (time.perf_counter() - begun) / COUNT
    def floor():
        begun = time.perf_counter()
        for _ in range(COUNT):
            libc.free(libc.malloc(SIZE))
        return (time.perf_counter() - begun) / COUNT
    for _ in range(int(sys.argv[1])):
        print(own(), floor())
"""


def median_pair(build: pathlib.Path, rounds: int) -> tuple[float, float]:
    rows = [tuple(map(float, line.split())) for line in run(build, PAIRS, str(rounds)).splitlines()]
    return statistics.median(row[0] for row in rows), statistics.median(row[0] / row[1] for row in rows)


def run(build: pathlib.Path, script: str, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "client/python/src"),
                   "GPUMEM_LIBRARY": str(build / "client/libgpumem.so.0")}
    return subprocess.run([sys.executable, "-c", script, *words], env=environment, check=True, capture_output=True,
                          text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    build = options.build.resolve()
    with tempfile.TemporaryDirectory(prefix="gpumem-bench-") as folder:
        config = pathlib.Path(folder, "gpumemd.toml")
        config.write_text(f'[host]\nsize = "{4 * options.mib}MiB"\n')
        runtime = pathlib.Path(folder, "run")
        os.environ["GPUMEM_RUNTIME_DIR"] = str(runtime)
        with running_broker(build, runtime, "--simulate", "1x1GiB", "--config", config):
            firsts = [[float(run(build, FIRST, str(options.mib), kind)) for kind in ("store", "own")]
                      for _ in range(options.rounds)]
            pair, to_malloc = median_pair(build, options.rounds)
    ratio = statistics.median(store / own for store, own in firsts)
    print(f"first buffer of {options.mib} MiB: {ratio:.2f} of the time that one thread takes to fault in as much")
    print(f"pair of allocation and free: {pair * 1e6:.2f} us, {to_malloc:.2f} times malloc and free")


if __name__ == "__main__":
    main()
