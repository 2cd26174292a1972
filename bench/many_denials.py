#!/usr/bin/env python3
"""The cost of 2,000 sessions of one user that each ask in vain once a second, while no claim waits and while one does.

    bench/many_denials.py [--build build/release] [--json FILE]

Runs `LongDenials.OfTwoThousandSessionsOnceASecond` with a broker of its own; it needs root, for the clients are of several users.
Prints denials a second, the part of a core that the broker used (all its threads), and the median of another user's ping.
"""
import argparse
import json
import pathlib

from test_figures import figures_of

TEST = "LongDenials.OfTwoThousandSessionsOnceASecond"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    test = figures_of(arguments.build / "tests/hostile/hostile_test", TEST, {}, "claim_core")
    figures = {name: float(test[name]) for name in test if name.startswith(("idle_", "claim_"))}
    for when in ("idle", "claim"):
        print(f"{when:5}: {figures[when + '_denials_a_second']:.0f} denials a second, {figures[when + '_core']:.2f} of a core, "
              f"ping {figures[when + '_ping_median_us']:.0f} us at the median")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
