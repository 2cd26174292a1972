#!/usr/bin/env python3
"""Whether the time of an answer tells a tenant that a region exists which is not shared with it.

    bench/hidden_regions.py [--build build/dev] [--rounds 5000] [--runs 3] [--strict]

Each run is `HiddenRegions.AreAsIfTheyDidNotExist` of tests/hostile with a broker of its own; it needs root, for the clients
are of two users. In each round every question is asked once, in an order of its own. Prints the median of each, the ratio to
the median of what does not exist, and the AUC: the chance that one answer about what is hidden took longer than one about
nothing. 0.5 tells nothing. z is how many standard deviations it is from that, by the test of Mann and Whitney. Exit status 1:
the test failed, or, with --strict, the AUC of all runs together is over 0.52 or under 0.48 for some name.
"""
import argparse
import bisect
import math
import pathlib
import statistics
import sys

from test_figures import figures_of

TEST = "HiddenRegions.AreAsIfTheyDidNotExist"
MOST = 0.02
# The compared pairs; the first of each has no region.
PAIRS = [("none", "private"), ("none", "group"), ("none", "named"), ("none", "no_tenant")]


def auc(none: list[int], hidden: list[int]) -> float:
    """The share of pairs in which the second is longer; half of those in which both are the same."""
    ordered = sorted(none)
    wins = sum(bisect.bisect_left(ordered, one) + bisect.bisect_right(ordered, one) for one in hidden)
    return wins / (2 * len(none) * len(hidden))


def deviations(value: float, first: int, second: int) -> float:
    return (value - 0.5) / math.sqrt((first + second + 1) / (12 * first * second))


def run_once(build: pathlib.Path, rounds: int) -> dict[str, list[int]]:
    figures = figures_of(build / "tests/hostile/hostile_test", TEST, {"GPUMEM_HIDDEN_ROUNDS": rounds}, "none")
    return {kind: [int(one) for one in figures[kind].split()] for pair in PAIRS for kind in pair}


def show(times: dict[str, list[int]]) -> float:
    """Prints all pairs. Returns how far the AUC of the worst name is from 0.5."""
    worst = 0.0
    for none, hidden in PAIRS:
        medians = statistics.median(times[none]), statistics.median(times[hidden])
        area = auc(times[none], times[hidden])
        worst = max(worst, abs(area - 0.5))
        print(f"  {none:>10} {medians[0] / 1000:.2f} us, {hidden:>9} {medians[1] / 1000:.2f} us: ratio "
              f"{medians[1] / medians[0]:.3f}, AUC {area:.3f}, z "
              f"{deviations(area, len(times[none]), len(times[hidden])):+.1f}", flush=True)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/dev"))
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--strict", action="store_true", help=f"fail if an AUC is {MOST:g} or more from 0.5")
    arguments = parser.parse_args()
    together: dict[str, list[int]] = {kind: [] for pair in PAIRS for kind in pair}
    for number in range(arguments.runs):
        print(f"run {number + 1}")
        times = run_once(arguments.build, arguments.rounds)
        show(times)
        for kind, one in times.items():
            together[kind] += one
    print("together")
    return 1 if show(together) >= MOST and arguments.strict else 0


if __name__ == "__main__":
    sys.exit(main())
