#!/usr/bin/env python3
"""dlclose() does not unload the library: its thread and its handlers of fork() and exit are called later.

Usage: stays_loaded.py LIBRARY. Exit status 1, and a line, if it is unloaded.
"""
import _ctypes
import ctypes
import os
import sys


def is_loaded(library: str) -> bool:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return any(line.rstrip().endswith(library) for line in maps)


def main() -> int:
    library = os.path.realpath(sys.argv[1])
    _ctypes.dlclose(ctypes.CDLL(library)._handle)  # pylint: disable=protected-access
    if is_loaded(library):
        return 0
    print(f"{library} is unloaded by dlclose()")
    return 1


if __name__ == "__main__":
    sys.exit(main())
