#!/usr/bin/env python3
"""Holds every #include against the dependency rule of docs/architecture.md.

Exit status 1, and a line for each include that goes the wrong way.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The rooms that each room may include, besides itself. A room with rooms inside stands for what lies in it directly.
ALLOWED = {
    "base": set(),
    "base/http": {"base"},
    "include": {"base"},
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
    "daemon/lane": {"base", "proto/lane", "daemon/core"},
    "daemon/pods": {"base", "daemon/core"},
    "daemon/rpc": {"base", "shm", "proto", "proto/generated", "daemon/core"},
    "daemon/metrics": {"base", "base/http", "daemon/core"},
    # A program of its own: it knows the broker by its wire contract.
    "daemon/kubernetes": {"base", "proto", "proto/generated"},
    "daemon/history": {"base", "base/http", "proto", "proto/generated"},
    # main wires the parts; of sim it knows only how to make a machine folder.
    "daemon": {"base", "base/http", "cuda", "sim/machine", "daemon/core", "daemon/pods", "daemon/host", "daemon/lane",
               "daemon/rpc", "daemon/metrics"},
    # Neither driver nor broker: only its two ports.
    "client/allocator": {"base", "include", "client/process"},
    "client/c": {"base", "cuda", "include", "client", "client/allocator"},
    # The drop-in driver stands on libgpumem and the real driver.
    "client/shim": {"base", "cuda", "include", "client", "client/allocator"},
    "client/shim/nvml": {"base", "cuda", "shm", "client", "client/shim"},
    "client/demo": {"base", "cuda", "include", "client"},
    "client/examples": {"base", "include"},
}

# The rooms of the large parts, from below: what all of them may include, and of the part's own rooms each one's.
INSIDE = {
    "daemon/core": ({"base", "shm"}, {
        "words": "", "ledger": "words", "memory": "words", "arbiter": "words ledger",
        "sessions": "words ledger memory arbiter", "reclaim": "words arbiter sessions",
        "lending": "words memory sessions reclaim", "broker": "words sessions reclaim lending"}),
    "daemon/host": ({"base", "base/http", "shm", "proto", "proto/lane", "proto/generated", "cuda", "daemon/core", "daemon/pods"}, {
        "system": "", "limits": "", "state": "system limits", "config": "system state", "driver": "system limits state",
        "sockets": "system limits state", "lanes": "system limits driver sockets",
        "loop": "system limits state driver sockets lanes"}),
    "client": ({"base", "shm", "cuda", "proto", "proto/lane", "include"}, {
        "process": "", "lane": "process", "session": "process lane", "slice": "process lane session allocator"}),
    # The only part of the client that speaks gRPC.
    "client/cli": ({"base", "base/http", "shm", "cuda", "proto", "proto/lane", "proto/generated", "include", "client"}, {
        "views": "", "monitor": "",
        "explain": "views monitor check commands", "system": "views monitor check commands", "check": "views monitor", "commands": "views monitor check",
        "run": "views monitor check commands run/program run/line", "regions": "views monitor check commands",
        "top": "views monitor commands", "web": "views monitor commands top",
        "": "views commands check explain regions run run/program system top web"}),
    "client/cli/run": ({"base", "cuda", "proto", "proto/generated", "include", "client", "client/shim", "client/cli/views",
                        "client/cli/monitor"}, {
        "program": "", "line": "program"}),
    "client/shim/memory": ({"base", "cuda", "include", "client", "client/allocator", "client/shim"}, {
        "session": "", "blocks": "session", "outside": "session blocks", "": "session blocks outside"}),
    "daemon/kubernetes": ({"base", "proto", "proto/generated"}, {
        "http": "", "claims": "http", "plugin": "http claims", "device_plugin": "http claims plugin",
        "": "claims plugin"}),
}
for part, (outside, rooms) in INSIDE.items():
    for room, below in rooms.items():
        name = f"{part}/{room}".rstrip("/")
        ALLOWED[name] = ALLOWED.get(name, set()) | outside | {f"{part}/{other}" for other in below.split()}
ALLOWED["client/shim/calls"] = ALLOWED["client/shim"] | {"client/shim", "client/shim/memory", "client/shim/memory/blocks",
                                                         "client/shim/memory/outside"}

# A room that may include a part may include these rooms of it.
ENTRIES = {
    "daemon/core": {"daemon/core/words", "daemon/core/sessions", "daemon/core/broker"},
    "daemon/host": {f"daemon/host/{room}" for room in INSIDE["daemon/host"][1]},
    "client": {f"client/{room}" for room in INSIDE["client"][1]},
}
for allowed in ALLOWED.values():
    for part in ENTRIES.keys() & allowed:
        allowed |= ENTRIES[part]
# The device's worker does the jobs.
ALLOWED["daemon/host/driver"] |= {"daemon/core/memory"}
ALLOWED["daemon/kubernetes/device_plugin"] |= {"daemon/kubernetes"}  # log options that both programs have

# The simulated driver is reached as a driver; one file of the broker knows of its folder.
SIMULATED_MACHINE = ("daemon/devices.cc", "sim/machine/machine.h")
# Public headers that stand on nothing else.
PUBLIC_BASE = {"bytes.h", "result.h", "detail/bytes_text.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def room_of(path: str) -> str:
    if path.startswith("include/gpumem/"):
        return "base" if path.removeprefix("include/gpumem/") in PUBLIC_BASE else "include"
    parts = path.split("/")
    for depth in range(len(parts) - 1, 0, -1):
        room = "/".join(parts[:depth])
        if room in ALLOWED:
            return room
    return parts[0]


def owner_of(header: str) -> str | None:
    """The room that a header belongs to, or nothing if it is not ours."""
    if header.startswith(("gpumem/v1/", "kubelet/")):
        return "proto/generated"
    if header == "gpumem.h" or header.startswith("gpumem/"):
        return room_of(f"include/{header}") if (ROOT / "include" / header).exists() else "unknown"
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
