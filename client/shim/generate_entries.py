#!/usr/bin/env python3
"""Writes what a shim exports: every name of NVIDIA's header, of a list of names, and of an installed library.

generate_entries.py cuda|nvml COMPILER OUTPUT_FOLDER INCLUDE_FOLDERS... [--names FILE] [--also LIBRARY]

forwarded.inc  GPUMEM_SHIM_FORWARD(number, NAME) for every name that is passed on to the real driver as it is.
replaced.cc    the exported functions of the calls in calls.def: each goes on to gpumem::shim::calls::NAME.

--names   more names, one a line; `#` begins a comment. They are forwarded, so their signatures need not be known.
--also    names that this library exports and the header does not have, as a new driver's: forwarded, too.
"""
import argparse
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sim/exports"))
from declarations import Call, declared_calls, preprocessed  # noqa: E402


class Library(NamedTuple):
    result: str
    prefix: str
    define: str  # with which names mean themselves in the header, not their newest version
    calls: str  # declares what calls.def may name, and gpumem::shim::calls
    definitions: str

    @property
    def source(self) -> str:
        return f'#define {self.define}\n#include "{self.calls}"\n'


LIBRARIES = {
    "cuda": Library("CUresult", "cu", "__CUDA_API_VERSION_INTERNAL", "client/shim/calls.h", "client/shim/calls.def"),
    "nvml": Library("nvmlReturn_t", "nvml", "NVML_NO_UNVERSIONED_FUNC_DEFS", "client/shim/nvml/calls.h",
                    "client/shim/nvml/calls.def"),
}


class Row(NamedTuple):
    name: str
    treatment: str
    why: str


def replaced_rows(library: Library, compiler: str, includes: list[str]) -> list[Row]:
    """The rows of calls.def that hold for this header."""
    text = preprocessed(compiler, includes, library.source + f'#include "{library.definitions}"\n')
    return [Row(*found) for found in re.findall(r'GPUMEM_SHIM_CALL ?\( ?(\w+) ?, ?(\w+) ?, ?"([^"]*)" ?\)', text)]


def header_calls(library: Library, compiler: str, includes: list[str]) -> dict[str, Call]:
    calls = declared_calls(compiler, includes, library.source, library.result, library.prefix)
    return {call.name: call for call in calls}


def listed_names(path: pathlib.Path) -> set[str]:
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return {line for line in lines if line}


def exported_names(path: str, prefix: str) -> set[str]:
    text = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    symbols = [line.split() for line in text.splitlines()]
    # Data (a debugger's, in libcuda.so.1) cannot be forwarded.
    return {symbol[2].split("@")[0] for symbol in symbols
            if len(symbol) == 3 and symbol[1] in "TWi" and re.match(rf"{prefix}[A-Z]", symbol[2])}


def write_forwarded(names: list[str], out: pathlib.Path) -> None:
    lines = ["// Made by generate_entries.py."]
    lines += [f"GPUMEM_SHIM_FORWARD({number}, {name})" for number, name in enumerate(names)]
    out.write_text("\n".join(lines) + "\n")


def write_replaced(library: Library, calls: list[Call], out: pathlib.Path) -> None:
    lines = ["// Made by generate_entries.py.", f'#include "{library.calls}"', 'extern "C" {']
    lines += [f"{library.result} {call.signature} "
              f"{{ return gpumem::shim::calls::{call.name}({', '.join(call.arguments)}); }}" for call in calls]
    out.write_text("\n".join(lines + ["}", ""]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("compiler")
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("includes", nargs="+")
    parser.add_argument("--names", type=pathlib.Path)
    parser.add_argument("--also", default="")
    given = parser.parse_args()
    library = LIBRARIES[given.library]
    includes = [str(ROOT), *given.includes]
    declared = header_calls(library, given.compiler, includes)
    if len(declared) < 150:
        sys.exit(f"generate_entries.py: found only {len(declared)} calls of {given.library} in {given.includes}")
    rows = replaced_rows(library, given.compiler, includes)
    unknown = [row.name for row in rows if row.name not in declared]
    if unknown or not rows:
        sys.exit(f"generate_entries.py: {len(rows)} rows in {library.definitions}; not in the header: {unknown}")
    names = set(declared)
    if given.names:
        names |= listed_names(given.names)
    if given.also:
        names |= exported_names(given.also, library.prefix)
    replaced = {row.name for row in rows}
    write_forwarded(sorted(names - replaced), given.output / "forwarded.inc")
    write_replaced(library, [declared[name] for name in sorted(replaced)], given.output / "replaced.cc")


if __name__ == "__main__":
    main()
