#!/usr/bin/env python3
"""Holds what a shared library needs against what every process has: the C library, and nothing else.

Usage: needed_libraries.py LIBRARY [NEWEST_GLIBC]. NEWEST_GLIBC, such as 2.28: no symbol of a newer glibc is needed.
Exit status 1, and a line for each thing too many.
"""
import re
import subprocess
import sys

# ld-linux is libc's own. libdl, libpthread and librt are parts of it before glibc 2.34.
ALLOWED = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux.*)\.so\.\d+")
MOST_BYTES = 2_000_000  # of what is loaded or shipped: without debugging sections


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def stripped_bytes(library: str) -> int:
    sections = re.findall(r"^\s*\[ *\d+\] (\S*) +(\S+) +\S+ +\S+ +([0-9a-f]+) ", output("readelf", "-SW", library), re.M)
    return sum(int(size, 16) for name, kind, size in sections
               if kind != "NOBITS" and not re.match(r"\.(debug|symtab|strtab)", name))


def main() -> int:
    library, newest = sys.argv[1], (sys.argv[2:] or [""])[0]
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", library))
    versions = sorted(set(re.findall(r"Name: GLIBC_([\d.]+)", output("readelf", "-VW", library))), key=numbers)
    size = stripped_bytes(library)
    if "libc.so.6" not in needed or not versions or size < 100_000:
        print(f"{library} needs {needed}, versions {versions}, {size} bytes: this check no longer sees the library")
        return 1
    wrong = [f"needs {name}; it may need only the C library" for name in needed if not ALLOWED.fullmatch(name)]
    if newest and numbers(versions[-1]) > numbers(newest):
        wrong.append(f"needs glibc {versions[-1]}; {newest} is promised")
    if size > MOST_BYTES:
        wrong.append(f"has {size} bytes without its debugging sections; {MOST_BYTES} are promised")
    for what in wrong:
        print(f"{library} {what}")
    print(f"glibc {versions[-1]}, {size} bytes, {' '.join(needed)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
