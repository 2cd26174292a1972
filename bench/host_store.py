#!/usr/bin/env python3
"""The cost of a buffer of the host store, against memory that a process takes by itself.

    bench/host_store.py [--build build/release] [--mib 1024] [--rounds 5]

Starts a broker on a simulated device. In turns, each in a fresh process: a buffer of the store (pageable), and an anonymous mapping
of the same size that one thread faults in. Prints the median ratio. Then times pairs of allocation and free of a buffer that the
process has had before, against malloc and free, all called through ctypes.

    bench/host_store.py --driver [--build build/release] [--mib 1024] [--rounds 5]

A process publishes a data set in a store of `kind = "driver"`. In a second process: mapping it, against registering as much memory of its
own with the driver (cuMemHostRegister), which is faulted in already. The simulated calls cost as on an H200 (gpumem-sim costs). Prints
the median ratio. Aim: a tenth.
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


PUBLISHER = """
import sys
import gpumem
with gpumem.Session.connect() as session, session.open_slice(device="host") as slice:
    slice.grow(int(sys.argv[1]) << 20)
    slice.publish("data", keep=True)
"""
SECOND = """
import ctypes, mmap, sys, time
import gpumem
from gpumem import _driver
size = int(sys.argv[1]) << 20
with gpumem.Session.connect() as session:
    session.map_region("data").close()  # opens the driver
    begun = time.perf_counter()
    region = session.map_region("data")
    mapped = time.perf_counter() - begun
    assert region.is_pinned
    own = mmap.mmap(-1, size)
    own.madvise(23)  # MADV_POPULATE_WRITE
    address = ctypes.addressof(ctypes.c_char.from_buffer(own))
    register = ctypes.CDLL("libcuda.so.1").cuMemHostRegister_v2
    register.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    with _driver.current(0):
        begun = time.perf_counter()
        assert register(address, size, 0) == 0
        print(mapped / (time.perf_counter() - begun))
"""


def second_process_of_driver(build: pathlib.Path, folder: str, mib: int, rounds: int) -> float:
    """The time of a second process to map `mib` MiB that the driver has pinned, by its time to pin as much by itself."""
    config, runtime = pathlib.Path(folder, "gpumemd.toml"), pathlib.Path(folder, "run")
    config.write_text(f'[host]\nsize = "{mib + 64}MiB"\nkind = "driver"\n')
    os.environ["GPUMEM_RUNTIME_DIR"] = str(runtime)
    broker = subprocess.Popen([build / "daemon/gpumemd", "--simulate", "1x1GiB", "--config", config, "--runtime-dir", runtime,
                               "--log-level", "warning"])
    try:
        deadline = time.monotonic() + 60
        while not (runtime / "lane.sock").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        run(build, PUBLISHER, str(mib))
        subprocess.run([build / "sim/gpumem-sim", "costs", runtime / "driver", "h200"], check=True, stdout=subprocess.DEVNULL)
        return statistics.median(float(run(build, SECOND, str(mib))) for _ in range(rounds))
    finally:
        broker.terminate()
        broker.wait(60)


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
    parser.add_argument("--driver", action="store_true", help="the second process of a store of the driver's memory")
    options = parser.parse_args()
    build = options.build.resolve()
    if options.driver:
        with tempfile.TemporaryDirectory(prefix="gpumem-bench-") as folder:
            ratio = second_process_of_driver(build, folder, options.mib, options.rounds)
        print(f"{options.mib} MiB for a second process: {ratio:.3f} of the time that it takes to pin as much by itself")
        return
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
