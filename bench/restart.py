#!/usr/bin/env python3
"""How long a client waits for memory when the broker is killed under it.

    bench/restart.py [--build build/dev] [--leases 1000] [--rounds 10] [--json FILE]

A client holds so many leases of 2 MiB on a simulated GPU. The broker is killed, and at once another one is started: measured
is the time from the kill to the end of a growth of 2 MiB that is asked for at the same moment. The floor, in the same run:
the time from the start of a broker that nobody was before, over the same pool, to its first growth granted, with connecting.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXTENT = 2 << 20


class Broker:
    def __init__(self, build: pathlib.Path, machine: str, folder: str):
        self.command = [str(build / "daemon/gpumemd"), "--driver-dir", machine, "--runtime-dir", folder,
                        "--config", os.devnull, "--log-level", "error"]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def connected(gpumem, folder: str):
    while True:
        try:
            return gpumem.Session.connect(runtime_folder=folder, timeout=20)
        except gpumem.Unavailable:
            time.sleep(0.0005)


def first_growth(gpumem, folder: str) -> None:
    with connected(gpumem, folder) as session, session.open_slice() as slice:
        slice.grow(EXTENT, wait=20)
        slice.shrink(0)


def fresh_start(gpumem, build: pathlib.Path, machine: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        broker = Broker(build, machine, folder)
        first_growth(gpumem, folder)
        took = time.monotonic() - begun
        broker.process.terminate()
        broker.process.wait()
    return took


def measure(gpumem, arguments, machine: str) -> dict:
    floor = [fresh_start(gpumem, arguments.build, machine) for _ in range(arguments.rounds)]
    took = []
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(arguments.build, machine, folder)
        with connected(gpumem, folder) as session, session.open_slice() as slice:
            for i in range(arguments.leases):
                slice.grow((i + 1) * EXTENT, wait=20)
            for _ in range(arguments.rounds):
                begun = time.monotonic()
                broker.kill()
                broker.start()
                slice.grow(slice.committed + EXTENT, wait=20)
                took.append(time.monotonic() - begun)
                slice.shrink(arguments.leases * EXTENT)
        broker.process.terminate()
        broker.process.wait()
    return {"leases": arguments.leases, "restart_ms": [1000 * one for one in took], "start_ms": [1000 * one for one in floor],
            "ratio": statistics.median(took) / statistics.median(floor)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev")
    parser.add_argument("--leases", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    os.environ["GPUMEM_LIBRARY"] = str(arguments.build / "client/libgpumem.so.0")
    sys.path.insert(0, str(ROOT / "client/python/src"))
    import gpumem  # noqa: PLC0415  after its library is known

    with tempfile.TemporaryDirectory() as machine:
        tool = arguments.build / "sim/gpumem-sim"
        subprocess.run([tool, "create", machine, f"1x{2 * arguments.leases + 1024}MiB"], check=True)
        try:
            figures = measure(gpumem, arguments, machine)
        finally:
            subprocess.run([tool, "remove", machine], check=False)
    print(f"{figures['leases']} leases: kill to first growth {statistics.median(figures['restart_ms']):.0f} ms, at most"
          f" {max(figures['restart_ms']):.0f} ms; start of an empty broker to first growth"
          f" {statistics.median(figures['start_ms']):.0f} ms; ratio {figures['ratio']:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
