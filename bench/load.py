#!/usr/bin/env python3
"""Times of operations while many sessions keep one broker busy: the test of tests/survive, timed and judged.

    bench/load.py [--build build/dev] [--sessions 2000] [--seconds 60] [--strict] [--json FILE]

Runs `LongSteadyLoad.OfTwoThousandSessionsIsBorneWithoutGrowth` with a broker of its own: each session does 20
operations a second, in turns a growth by 2 MiB, a look at the quota, its return, a look at the slices. Prints the rate,
p50, p99 and the longest operation of the worst of four client processes, while the broker warms up and after that, and
what the broker has grown by. The aim is a p99 of at most 5 times the median. Exit status 1: the test failed, or, with
--strict, the aim is missed.
"""
import argparse
import json
import pathlib
import sys

from test_figures import figures_of

TEST = "LongSteadyLoad.OfTwoThousandSessionsIsBorneWithoutGrowth"
MOST = 5.0


def run(build: pathlib.Path, sessions: int, seconds: int) -> dict[str, int]:
    told = figures_of(build / "tests/survive/load_test", TEST,
                      {"GPUMEM_LOAD_SESSIONS": sessions, "GPUMEM_LOAD_SECONDS": seconds}, "load_p99_us")
    return {name: int(value) for name, value in told.items()
            if name.startswith(("warm_", "load_", "resident_", "descriptors"))}


def show(figures: dict[str, int]) -> None:
    for phase in ("warm", "load"):
        print(f"{phase}: {figures[f'{phase}_operations']} operations, {figures[f'{phase}_per_second']} a second,"
              f" p50 {figures[f'{phase}_p50_us']} us, p99 {figures[f'{phase}_p99_us']} us,"
              f" longest {figures[f'{phase}_max_us']} us")
    print(f"the broker: {figures['resident_kib_warm']} KiB warm, {figures['resident_kib']} KiB at the end,"
          f" {figures['descriptors']} descriptors")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/dev"))
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--strict", action="store_true", help=f"fail if the ratio is over {MOST:g}")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    figures = run(arguments.build, arguments.sessions, arguments.seconds)
    show(figures)
    ratio = figures["load_p99_us"] / max(figures["load_p50_us"], 1)
    print(f"p99 by median {ratio:.1f}, at most {MOST:g} wanted")
    if arguments.json:
        arguments.json.write_text(json.dumps({"sessions": arguments.sessions, "seconds": arguments.seconds,
                                              "p99_by_median": ratio, **figures}, indent=1))
    return 1 if arguments.strict and ratio > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
