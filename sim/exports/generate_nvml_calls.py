#!/usr/bin/env python3
"""Writes what the simulated management library exports, from NVIDIA's own nvml.h.

generate_nvml_calls.py COMPILER INCLUDE_FOLDER OUTPUT_FOLDER

nvml_calls.h     declares gpumem::sim::api::NAME for every call that nvml.h knows, older versions included,
                 and defines HAVE_NAME, since nvml.h does not tell what is new in it.
nvml_entries.cc  exports every name. An entry passes the gate (faults, costs) and goes on to api::NAME, which
                 is NVML_ERROR_NOT_SUPPORTED unless a file of sim/ defines it.
"""
import pathlib
import sys

from declarations import Call, declared_calls, entry, names_and_stubs

SOURCE = "#define NVML_NO_UNVERSIONED_FUNC_DEFS\n#include <nvml.h>\n"


def write_calls(calls: list[Call], out: pathlib.Path) -> None:
    lines = ["// Made by generate_nvml_calls.py from nvml.h.", "#pragma once",
             "#ifndef NVML_NO_UNVERSIONED_FUNC_DEFS", "#error names must mean themselves here", "#endif",
             "#include <nvml.h>"]
    lines += [f"#define HAVE_{call.name} 1" for call in calls]
    lines += ["namespace gpumem::sim::api {"]
    lines += [f"nvmlReturn_t {call.signature};" for call in calls]
    lines += ["}  // namespace gpumem::sim::api", ""]
    out.write_text("\n".join(lines))


def write_entries(calls: list[Call], out: pathlib.Path) -> None:
    lines = ["// Made by generate_nvml_calls.py from nvml.h.", '#include "nvml_calls.h"', '#include "sim/exports/gate.h"']
    lines += names_and_stubs(calls, calls, "nvmlReturn_t", "NVML_ERROR_NOT_SUPPORTED")
    lines += ['extern "C" {']
    lines += [entry(index, call, "nvmlReturn_t", call.name) for index, call in enumerate(calls)]
    lines += ["}", ""]
    out.write_text("\n".join(lines))


def main() -> None:
    compiler, include, folder = sys.argv[1:]
    out = pathlib.Path(folder)
    calls = declared_calls(compiler, [include], SOURCE, "nvmlReturn_t", "nvml")
    if len(calls) < 150:
        sys.exit(f"generate_nvml_calls.py: found only {len(calls)} calls in {include}/nvml.h")
    write_calls(calls, out / "nvml_calls.h")
    write_entries(calls, out / "nvml_entries.cc")


if __name__ == "__main__":
    main()
