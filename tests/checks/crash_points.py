#!/usr/bin/env python3
"""Holds docs/crash-points.md against base/crash_points.h: the same points in the same order, and what can fail.

Exit status 1, and a line for each that differs.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main() -> int:
    code = [(name, kind == "CALL") for kind, name in
            re.findall(r'\b(POINT|CALL)\(\w+, "([^"]+)"\)', (ROOT / "base/crash_points.h").read_text())]
    page = [(name, bool(fails.strip())) for name, fails in
            re.findall(r"^\| `((?:broker|client|dra)\.[^`]+)` \|[^|]+\|([^|]*)\|$",
                       (ROOT / "docs/crash-points.md").read_text(), re.M)]
    if not code:
        print("base/crash_points.h has no points")
        return 1
    for name, fails in [point for point in code if point not in page]:
        print(f"docs/crash-points.md does not have {name}{', which can fail' if fails else ''}")
    for name, fails in [point for point in page if point not in code]:
        print(f"base/crash_points.h does not have {name}{', which can fail' if fails else ''}")
    if sorted(code) == sorted(page) and code != page:
        print("docs/crash-points.md has another order than base/crash_points.h")
    print(f"{len(code)} crash points, {len(page)} in the docs")
    return 0 if code == page else 1


if __name__ == "__main__":
    sys.exit(main())
