#!/usr/bin/env python3
"""The tests and files that the pages about promises name are there: each `Suite.Test`, each path, each `name_test`."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["docs/trust-boundary.md", "docs/guarantees.md"]
FOLDERS = ("base", "client", "cuda", "daemon", "docs", "proto", "shm", "sim", "tests", "deploy", "bench")
TEST = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
QUOTED = re.compile(r"`([^`\n]+)`")
NAMED_TEST = re.compile(r"[A-Z]\w+\.[A-Z]\w+")
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./-]+")
BARE_TEST = re.compile(r"\w+_test")


def tests_of(files: list[str]) -> set[str]:
    found: set[str] = set()
    for name in files:
        if name.startswith("tests/") and name.endswith(".cc"):
            found |= {f"{suite}.{test}" for suite, test in TEST.findall((ROOT / name).read_text())}
    return found


def is_path(path: str) -> bool:
    return any((ROOT / (path.rstrip("/") + ending)).exists() for ending in ("", ".cc", ".py", ".h"))


def main() -> int:
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"],
                           capture_output=True, text=True, check=True).stdout.split()
    tests = tests_of(files)
    stems = {pathlib.PurePath(name).stem for name in files if name.startswith("tests/")}
    named = missing = 0
    for page in PAGES:
        for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
            for word in QUOTED.findall(line):
                if NAMED_TEST.fullmatch(word):
                    there = word in tests
                elif PATH.fullmatch(word):
                    there = is_path(word)
                elif BARE_TEST.fullmatch(word):
                    there = word in stems
                else:
                    continue
                named += 1
                if not there:
                    print(f"{page}:{number}: there is no {word}")
                    missing += 1
    print(f"{named} tests and files are named, {missing} are not there")
    return 1 if missing or not named else 0


if __name__ == "__main__":
    sys.exit(main())
