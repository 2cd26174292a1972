#!/usr/bin/env python3
"""The cost of memory of the host store, against memory that a process takes by itself.

    bench/host_store.py [--build build/release] [--kind memfd|driver] [--mib 1024] [--rounds 5] [--strict]

Starts a broker on a simulated device. In turns, each in a fresh process:

- A buffer of the store that is not pinned, against an anonymous mapping of the same size that one thread faults in.
- A pinned region of the store, which another process has filled, against cuMemHostAlloc of the same size. Aim: half of the time, a
  tenth with `--kind driver`; --strict fails if it is missed. The simulated driver faults in what it pins, and no more: it locks no
  pages.

Prints the median ratios. Then times pairs of allocation and free of a buffer that the process has had before, against malloc and
free, all called through ctypes. With `--kind driver` the second line is the only one, because that memory is always pinned. The
machine needs 1.5 times `--mib` of free memory: each turn frees its memory before the next one.
"""
import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from running_broker import running_broker

ROOT = pathlib.Path(__file__).resolve().parents[1]
MOST_OF_PINNING = {"memfd": 0.5, "driver": 0.1}
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
PUBLISH = """
import sys
import gpumem
with gpumem.Session.connect() as session, session.open_slice(device="host") as slice:
    slice.grow(int(sys.argv[1]) << 20)
    slice.publish("data")
    print("published", flush=True)
    sys.stdin.read()
"""
PINNED = """
import ctypes, os, sys, time
import gpumem
size = int(sys.argv[1]) << 20
cuda, context, own = ctypes.CDLL(os.environ["GPUMEM_RUNTIME_DIR"] + "/driver/libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
with gpumem.Session.connect() as session:
    session.ping()
    begun = time.perf_counter()
    if sys.argv[2] == "store":
        region = session.map_region("data", pinned=True)
        assert region.is_pinned
    else:
        assert cuda.cuMemHostAlloc(ctypes.byref(own), ctypes.c_size_t(size), 0) == 0
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


def environment(build: pathlib.Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "client/python/src"), "GPUMEM_LIBRARY": str(build / "client/libgpumem.so.0")}


def run(build: pathlib.Path, script: str, *words: str) -> str:
    return subprocess.run([sys.executable, "-c", script, *words], env=environment(build), check=True, capture_output=True,
                          text=True).stdout


@contextlib.contextmanager
def published(build: pathlib.Path, mib: int) -> Iterator[None]:
    """The region is there until exit. Then its memory is free again."""
    publisher = subprocess.Popen([sys.executable, "-c", PUBLISH, str(mib)], env=environment(build), stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
    try:
        if publisher.stdout.readline() != "published\n":
            sys.exit("the region is not published")
        yield
    finally:
        publisher.communicate()


def median_ratio(build: pathlib.Path, script: str, options: argparse.Namespace,
                 before_store: Callable[[], contextlib.AbstractContextManager[None]]) -> float:
    """Of the time with memory of the store, by the time with the process's own, in turns. `before_store`  is entered for each
    turn with memory of the store."""
    ratios = []
    for _ in range(options.rounds):
        own = float(run(build, script, str(options.mib), "own"))
        with before_store():
            ratios.append(float(run(build, script, str(options.mib), "store")) / own)
    return statistics.median(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--kind", choices=MOST_OF_PINNING, default="memfd", help="of the store")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--strict", action="store_true", help="fail if the aim is missed")
    options = parser.parse_args()
    build = options.build.resolve()
    with tempfile.TemporaryDirectory(prefix="gpumem-bench-") as folder:
        config = pathlib.Path(folder, "gpumemd.toml")
        config.write_text(f'[host]\nsize = "{2 * options.mib}MiB"\nkind = "{options.kind}"\n')
        runtime = pathlib.Path(folder, "run")
        os.environ["GPUMEM_RUNTIME_DIR"] = str(runtime)
        with running_broker(build, runtime, "--simulate", "1x1GiB", "--config", config):
            if options.kind == "memfd":
                first = median_ratio(build, FIRST, options, contextlib.nullcontext)
                print(f"first buffer of {options.mib} MiB: {first:.2f} of the time that one thread takes to fault in as much")
                pair, to_malloc = median_pair(build, options.rounds)
                print(f"pair of allocation and free: {pair * 1e6:.2f} us, {to_malloc:.2f} times malloc and free")
            second = median_ratio(build, PINNED, options, lambda: published(build, options.mib))
            print(f"{options.mib} MiB pinned for a second process: {second:.3f} of the time that it takes to pin as much by itself")
    return 1 if options.strict and second > MOST_OF_PINNING[options.kind] else 0


if __name__ == "__main__":
    sys.exit(main())
