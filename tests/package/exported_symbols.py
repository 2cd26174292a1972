#!/usr/bin/env python3
"""Holds what the shared library shows against gpumem.h. Usage: exported_symbols.py LIBRARY

Every function that the header declares is exported as GPUMEM_0, and nothing else is: no symbol of C++, of the library's
own or of the C++ runtime that it has inside.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DECLARED = re.compile(r"^(?:const )?\w+\*? \*?(gpumem_\w+)\(", re.M)


def declared() -> set[str]:
    text = (ROOT / "include/gpumem.h").read_text()
    return set(DECLARED.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S)))


def exported(library: str) -> list[str]:
    listed = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], capture_output=True,
                            text=True, check=True).stdout
    return [line.split()[-1] for line in listed.splitlines() if not line.split()[-1].startswith("GPUMEM_")]


def main() -> int:
    wrong = []
    seen: set[str] = set()
    for symbol in exported(sys.argv[1]):
        name, _, version = symbol.partition("@")
        if version.lstrip("@") != "GPUMEM_0":
            wrong.append(f"{symbol}: not of version GPUMEM_0")
        seen.add(name)
    wrong += [f"{name}: in gpumem.h, but not exported" for name in sorted(declared() - seen)]
    wrong += [f"{name}: exported, but not in gpumem.h" for name in sorted(seen - declared())]
    print("\n".join(wrong + [f"{len(seen)} functions, {len(wrong)} wrong"]))
    return 1 if wrong or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
