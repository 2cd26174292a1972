#!/usr/bin/env python3
"""Writes what the simulated driver exports, from NVIDIA's own headers.

generate_calls.py COMPILER INCLUDE_FOLDER OUTPUT_FOLDER

calls.h     declares gpumem::sim::api::NAME for every driver call that cuda.h knows, older versions included.
entries.cc  exports every name. An entry passes the gate (faults, costs) and goes on to api::NAME, which is
            CUDA_ERROR_NOT_SUPPORTED unless a file of sim/ defines it. The variants for the per-thread default
            stream (_ptds, _ptsz) go on to their base.
versions.inc  which name a base name stands for since which CUDA version, for cuGetProcAddress.
"""
import pathlib
import re
import sys

from declarations import Call, declared_calls, entry, names_and_stubs

PER_THREAD = ("_ptsz", "_ptds")
SOURCE = "#define __CUDA_API_VERSION_INTERNAL\n#include \"profiler_calls.h\"\n"


def base_of(name: str) -> str:
    """The name without the suffix for the per-thread default stream."""
    return name[:-5] if name.endswith(PER_THREAD) else name


def base_calls(calls: list[Call]) -> list[Call]:
    known = {call.name for call in calls}
    for call in calls:
        if base_of(call.name) not in known:
            sys.exit(f"generate_calls.py: {call.name} has no base")
    return [call for call in calls if call.name == base_of(call.name)]


def write_calls(calls: list[Call], out: pathlib.Path) -> None:
    lines = ["// Made by generate_calls.py from cuda.h.", "#pragma once",
             "#ifndef __CUDA_API_VERSION_INTERNAL", "#error names must mean themselves here", "#endif",
             "#include <cuda.h>", '#include "sim/exports/profiler_calls.h"', "namespace gpumem::sim::api {"]
    lines += [f"CUresult {call.signature};" for call in base_calls(calls)]
    lines += ["}  // namespace gpumem::sim::api", ""]
    out.write_text("\n".join(lines))


def write_entries(calls: list[Call], out: pathlib.Path) -> None:
    lines = ["// Made by generate_calls.py from cuda.h.", '#include "calls.h"', '#include "sim/exports/gate.h"',
             '#include "sim/exports/per_thread_default.h"']
    lines += names_and_stubs(base_calls(calls), calls, "CUresult", "CUDA_ERROR_NOT_SUPPORTED")
    lines += ['extern "C" {']
    for index, call in enumerate(calls):
        base = base_of(call.name)
        scope = "const PerThreadDefault per_thread; " if base != call.name else ""
        lines.append(entry(index, call, "CUresult", base, scope))
    lines += ["}", ""]
    out.write_text("\n".join(lines))


def since_versions(include: str) -> dict[str, list[int]]:
    """By base name: the CUDA versions in which its signature was new, as cudaTypedefs.h tells them."""
    text = pathlib.Path(include, "cudaTypedefs.h").read_text()
    since: dict[str, set[int]] = {}
    for name, version in re.findall(r"\bPFN_(cu\w+?)_v(\d+)\)", text):
        since.setdefault(name, set()).add(int(version))
    return {name: sorted(versions) for name, versions in since.items()}


def write_versions(calls: list[Call], since: dict[str, list[int]], out: pathlib.Path) -> None:
    variants: dict[str, list[str]] = {}
    for call in calls:
        name = base_of(call.name)
        base = re.sub(r"_v\d+$", "", name)
        if name not in variants.setdefault(base, []):
            variants[base].append(name)
    lines = ["// Made by generate_calls.py from cuda.h and cudaTypedefs.h: base name, since, name."]
    for base, names in sorted(variants.items()):  # look-ups rely on the order
        names.sort(key=lambda name: int((re.search(r"_v(\d+)$", name) or [0, "1"])[1]))
        versions = since.get(base, [])
        # The newest names are known by all headers; an older one without a version is as old as the API.
        versions = [2000] * (len(names) - len(versions)) + versions[-len(names):]
        for name, version in reversed(list(zip(names, versions))):
            lines.append(f'{{"{base}", {version}, "{name}"}},')
    out.write_text("\n".join(lines) + "\n")


def main() -> None:
    compiler, include, folder = sys.argv[1:]
    own = pathlib.Path(__file__).parent
    out = pathlib.Path(folder)
    calls = declared_calls(compiler, [include, str(own)], SOURCE, "CUresult", "cu")
    if len(calls) < 300:
        sys.exit(f"generate_calls.py: found only {len(calls)} calls in {include}/cuda.h")
    write_calls(calls, out / "calls.h")
    write_entries(calls, out / "entries.cc")
    write_versions(calls, since_versions(include), out / "versions.inc")


if __name__ == "__main__":
    main()
