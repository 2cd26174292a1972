#!/usr/bin/env python3
"""How much slower a growth and its return become beside 2,048 requests of another tenant for two devices at once.

    bench/beside_joint_requests.py [--build build/dev] [--runs 5] [--strict]

Each run is `JointRequests.ByTheThousandsDoNotDelayAnothersCalls` of tests/hostile with a broker of its own; it needs root,
for the clients are of two users. The client grows within what its tenant is guaranteed, before the requests and beside them.
Prints each run and the median ratio. Exit status 1: the test failed, or, with --strict, the median is over 3.
"""
import argparse
import pathlib
import statistics
import sys

from test_figures import figures_of

TEST = "JointRequests.ByTheThousandsDoNotDelayAnothersCalls"
MOST = 3.0


def run_once(build: pathlib.Path) -> float:
    figures = figures_of(build / "tests/hostile/hostile_test", TEST, {}, "beside_us")
    alone, beside = int(figures["alone_us"]), int(figures["beside_us"])
    print(f"alone {alone} us, beside {beside} us: {beside / alone:.2f}", flush=True)
    return beside / alone


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/dev"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--strict", action="store_true", help=f"fail if the median ratio is over {MOST:g}")
    arguments = parser.parse_args()
    ratio = statistics.median(run_once(arguments.build) for _ in range(arguments.runs))
    print(f"median {ratio:.2f}")
    return 1 if arguments.strict and ratio > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
