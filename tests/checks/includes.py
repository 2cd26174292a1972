#!/usr/bin/env python3
"""Holds every #include against the dependency rule of docs/architecture.md.

Exit status 1, and a line for each include that goes the wrong way.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The rooms that each room may include, besides itself.
ALLOWED = {
    "base": set(),
    "proto": {"base"},
    "proto/lane": {"base"},
    # The generated code, which brings gRPC and Protocol Buffers along.
    "proto/generated": set(),
    "shm": {"base"},
    "cuda": {"base"},
    "sim/machine": {"base"},
    "sim/control": {"base", "sim/machine"},
    "sim/exports": {"base", "sim/machine", "sim/control"},
    "sim/driver": {"base", "sim/machine", "sim/control", "sim/exports"},
    "sim/calls": {"base", "sim/machine", "sim/control", "sim/exports", "sim/driver"},
    "sim/nvml": {"base", "sim/machine", "sim/control", "sim/exports"},
    "sim/tool": {"base", "sim/machine", "sim/control"},
    "daemon/core": {"base", "shm"},
    "daemon/lane": {"base", "proto/lane", "daemon/core"},
    "daemon/pods": {"base", "daemon/core"},
    "daemon/host": {"base", "shm", "proto", "proto/lane", "proto/generated", "cuda", "daemon/core", "daemon/pods"},
    "daemon/rpc": {"base", "shm", "proto", "proto/generated", "daemon/core"},
    "daemon/metrics": {"base", "daemon/core"},
    # A program of its own: it knows the broker by its wire contract.
    "daemon/kubernetes": {"base", "proto", "proto/generated"},
    # main wires the parts; of sim it knows only how to make a machine folder.
    "daemon": {"base", "cuda", "sim/machine", "daemon/core", "daemon/pods", "daemon/host", "daemon/lane",
               "daemon/rpc", "daemon/metrics"},
    "client/include": {"base"},
    "client/fork_guard": {"base"},
    "client/background_task": {"base", "client/include", "client/fork_guard"},
    # Neither driver nor broker: only its two ports.
    "client/allocator": {"base", "client/include", "client/fork_guard", "client/background_task"},
    "client": {"base", "shm", "cuda", "proto", "proto/lane", "client/include", "client/fork_guard", "client/background_task",
               "client/allocator"},
    "client/c": {"base", "cuda", "client/include", "client/fork_guard", "client/allocator", "client"},
    # The only part of the client that speaks gRPC.
    "client/cli": {"base", "shm", "cuda", "proto", "proto/lane", "proto/generated", "client/include",
                   "client/fork_guard", "client", "client/shim"},
    # The drop-in driver stands on libgpumem and the real driver.
    "client/shim": {"base", "cuda", "client/include", "client/fork_guard", "client/allocator", "client"},
    "client/demo": {"base", "cuda", "client/include", "client"},
    "client/examples": {"base", "client/include"},
}
# Files of a room that are one of their own, with a target of their own.
APART = {f"client/{name}{suffix}": f"client/{name}"
         for name in ("fork_guard", "background_task") for suffix in (".h", ".cc")}
# The simulated driver is reached as a driver; one file of the broker knows of its folder.
SIMULATED_MACHINE = ("daemon/devices.cc", "sim/machine/machine.h")
PUBLIC = {"base/include/gpumem": "base", "client/include/gpumem": "client/include"}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def room_of(path: str) -> str:
    if path in APART:
        return APART[path]
    parts = path.split("/")
    for depth in (2, 1):
        room = "/".join(parts[:depth])
        if room in ALLOWED and len(parts) > depth:
            return room
    return parts[0]


def owner_of(header: str) -> str | None:
    """The room that a header belongs to, or nothing if it is not ours."""
    if header.startswith(("gpumem/v1/", "kubelet/")):
        return "proto/generated"
    if header.startswith("gpumem/"):
        for folder, room in PUBLIC.items():
            if (ROOT / folder / header.removeprefix("gpumem/")).exists():
                return room
        return "unknown"
    if "/" in header and header.split("/")[0] in {room.split("/")[0] for room in ALLOWED} | {"tests", "bench"}:
        return room_of(header)
    return None


def main() -> int:
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.h", "*.cc", "*.c"], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.split()
    wrong = 0
    seen = 0
    for name in files:
        room = room_of(name)
        if room not in ALLOWED:
            continue  # tests and benchmarks may look everywhere
        for header in INCLUDE.findall((ROOT / name).read_text()):
            owner = owner_of(header)
            if owner is None or owner == room:
                continue
            seen += 1
            is_simulator = owner.startswith("sim/") and not room.startswith("sim/") and (name, header) != SIMULATED_MACHINE
            if owner not in ALLOWED[room] or is_simulator:
                print(f"{name}: includes {header} of {owner}; {room} may include only: "
                      f"{', '.join(sorted(ALLOWED[room])) or 'nothing of ours'}")
                wrong += 1
    if seen < 100:
        print(f"only {seen} includes between rooms were found: this check no longer sees the code")
        return 1
    print(f"{seen} includes between rooms, {wrong} against the rule")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
