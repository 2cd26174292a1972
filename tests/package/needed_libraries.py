#!/usr/bin/env python3
"""Holds the libraries that a shared library needs against those that every process has.

Usage: needed_libraries.py LIBRARY. Exit status 1, and a line for each library too many.
"""
import re
import subprocess
import sys

# ld-linux is libc's own. libdl, libpthread and librt are parts of it before glibc 2.34.
ALLOWED = re.compile(r"(libstdc\+\+|libgcc_s|libc|libm|libdl|libpthread|librt|ld-linux.*)\.so\.\d+")


def main() -> int:
    library = sys.argv[1]
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    if "libc.so.6" not in needed:
        print(f"{library} needs {needed}: this check no longer sees what a library needs")
        return 1
    too_many = [name for name in needed if not ALLOWED.fullmatch(name)]
    for name in too_many:
        print(f"{library} needs {name}; it may need only the C and C++ libraries")
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main())
