#!/usr/bin/env python3
"""Cost of a connection for a program: time, memory and threads.

    bench/connect_cost.py [--build build/dev] [--sessions 200] [--strict | --strict-size]

Starts a simulated broker, and a fresh program that loads the library and connects so often, one session after the other.
Prints the median and the p99 of connecting, what the program's resident memory grows by with the first session
(the library is loaded already) and how many threads it then has. Aims: 1 ms (median), 1 MB, no thread of the library. Exit
status 1: with --strict, an aim is missed; with --strict-size, one of memory or threads, which no other load of the machine changes.
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from running_broker import running_broker

MOST_US, MOST_KB, MOST_THREADS = 1000, 1000, 0


def status_of(name: str) -> int:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


def connect_and_measure(library: str, sessions: int) -> None:
    """In the fresh program: prints what it saw as JSON."""
    gpumem = ctypes.CDLL(library)
    gpumem.gpumem_last_error.restype = ctypes.c_char_p
    before_kb, threads_before = status_of("VmRSS"), status_of("Threads")
    microseconds = []
    for number in range(sessions):
        session = ctypes.c_void_p()
        start = time.perf_counter_ns()
        status = gpumem.gpumem_session_connect(None, ctypes.byref(session))
        microseconds.append((time.perf_counter_ns() - start) / 1000)
        if status:
            sys.exit(gpumem.gpumem_last_error().decode())
        if number == 0:
            first_kb, threads = status_of("VmRSS") - before_kb, status_of("Threads") - threads_before
        gpumem.gpumem_session_close(session)
    print(json.dumps({"us": microseconds, "first_kb": first_kb, "threads": threads}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/dev"))
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--strict", action="store_true", help="fail if an aim is missed")
    parser.add_argument("--strict-size", action="store_true", help="fail if an aim of memory or threads is missed")
    parser.add_argument("--in-program", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    library = os.environ.get("GPUMEM_LIBRARY") or str((options.build / "client/libgpumem.so.0").resolve())
    if options.in_program:
        connect_and_measure(library, options.sessions)
        return 0
    with tempfile.TemporaryDirectory(prefix="gpumem-connect-") as folder:
        runtime = pathlib.Path(folder, "run")
        with running_broker(options.build, runtime, "--simulate", "1x256MiB"):
            environment = {**os.environ, "GPUMEM_RUNTIME_DIR": str(runtime), "GPUMEM_LIBRARY": library}
            said = subprocess.run([sys.executable, __file__, "--in-program", "--sessions", str(options.sessions)],
                                  env=environment, check=True, stdout=subprocess.PIPE).stdout
    seen = json.loads(said)
    ordered = sorted(seen["us"])
    median = statistics.median(ordered)
    print(f"connecting: median {median:.0f} us, p99 {ordered[int(len(ordered) * 0.99)]:.0f} us, "
          f"{len(ordered)} times; the first session: {seen['first_kb']} kB, {seen['threads']} threads")
    is_large = seen["first_kb"] > MOST_KB or seen["threads"] > MOST_THREADS
    missed = is_large if options.strict_size else is_large or median > MOST_US
    return 1 if (options.strict or options.strict_size) and missed else 0


if __name__ == "__main__":
    sys.exit(main())
