#!/usr/bin/env python3
"""Holds docs/shim-calls.md, and what becomes of each call about memory, against the driver's header.

shim_calls.py BUILD_FOLDER [--fix | --rows]
--fix   writes the page, and takes rows that say nothing out of forwarded.txt
--rows  whatever header the build has: looks only whether every call has its row

A finding is a replaced call that no test in tests/shim_memory calls by its name; a forwarded one that allocates, imports or binds
(TAKING) that no program of tests/shim_programs calls; a call about memory (PATTERNS) that neither calls.def nor forwarded.txt knows, as a newer header may bring; a
row for a call that the header does not have; a call of which one form is replaced and the newest, or that of the other
default stream, is not.
"""
import fnmatch
import pathlib
import re
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIM = ROOT / "client/shim"
sys.path.insert(0, str(SHIM))
from generate_entries import LIBRARIES, Row, header_calls, listed_names, replaced_rows  # noqa: E402

PAGE = ROOT / "docs/shim-calls.md"
FORWARDED = SHIM / "forwarded.txt"
TESTS = ROOT / "tests/shim_memory"
PROGRAMS = ROOT / "tests/shim_programs"
TREATMENTS = ("brokered", "charged", "answered", "translated")
# Parts of names by which a call is known to be about memory. Wider than need be: a row in forwarded.txt costs less than an
# allocation that nobody sees.
PATTERNS = {
    "Alloc|Free": "everything that allocates: pointers, pools' blocks, managed and host memory, nodes of graphs",
    "Mem(GetInfo|GetAddress|GetHandle|Create|Release|Retain|Map|Unmap|SetAccess|Address)": "memory by handles; figures",
    "MemPool|TotalMem|GraphMem[A-Z]": "pools, also those of graphs; figures",
    "Array3?D?(Create|Destroy)": "arrays, also mipmapped ones",
    "Ipc|Import|Export|External(Memory)": "memory of other processes and interfaces",
    "Ctx(Create|Destroy|Attach|Detach|SetLimit|EnablePeer|DisablePeer|Retain|Release|Reset)\\b": "contexts take memory",
    "Graph(AddNode|Instantiate|Upload|Launch|Exec\\w*Update|ExecDestroy)": "allocations of graphs happen here",
    "(Module|Library)(Load|Unload)|LinkC|FuncLoad": "code and global variables are in the device's memory",
    "Multicast": "memory bound to several devices",
    "Pointer(Get|Set)Attribute": "what programs learn of memory",
    "HostRegister|HostUnregister|GLRegister|Graphics\\w*[rR]egister": "memory of others, made known to the device",
    "Checkpoint": "memory of a process that is put away",
    "GetProcAddress": "by which calls are found",
}
# Forwarded calls by which a program comes to memory, or binds it.
TAKING = ("cuGraphAddNode", "cuMemPoolImport*", "cuMemMapArrayAsync", "cuMulticastCreate", "cuMulticastBind*", "cuMemSetMemPool",
          "cuExternalMemoryGetMapped*", "cuMemGetHandleForAddressRange")
HEAD = """# What the shim does with each call about memory
Made by `tests/checks/shim_calls.py BUILD --fix`; `./dev check` and a test hold it against the driver's header. A call is
*brokered*: served from lent memory; *charged*: told to the broker and forwarded; *answered* by the shim; *translated*:
forwarded with other arguments or another result; or *forwarded* as it is. A name stands for all its versions and for
both default streams, unless a form has a row of its own.

| Call | Treatment | Why |
|---|---|---|
"""


class Forwarded(NamedTuple):
    pattern: str
    why: str
    line: str


def base(name: str) -> str:
    return re.sub(r"_v\d+$", "", re.sub(r"_pts[zd]$", "", name))


def version(name: str) -> int:
    found = re.search(r"_v(\d+)(?:_pts[zd])?$", name)
    return int(found[1]) if found else 1


def forwarded_rows() -> list[Forwarded]:
    rows = []
    for line in FORWARDED.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, why = (part.strip() for part in line.split("|"))
            rows.append(Forwarded(pattern, why, line))
    return rows


def is_about_memory(name: str) -> bool:
    return any(re.search(pattern, base(name)) for pattern in PATTERNS)


def unfinished(replaced: dict[str, Row], names: set[str]) -> list[str]:
    """Forms of replaced calls that are forwarded though programs of today use them."""
    findings = []
    for name in sorted(replaced):
        newest = max((other for other in names if base(other) == base(name) and not re.search(r"_pts[zd]$", other)),
                     key=version, default=name)
        wanted = [newest] + [name + suffix for suffix in ("_ptsz", "_ptds") if name + suffix in names]
        findings += [f"{name} is replaced and {other} is not" for other in wanted if other not in replaced]
    return findings


def untested(replaced: dict[str, Row]) -> list[str]:
    text = "".join(path.read_text() for path in TESTS.glob("*.cc"))
    return [f"{name} is {replaced[name].treatment}, and no test in tests/shim_memory calls it" for name in sorted(replaced)
            if base(name) != "cuGetProcAddress" and not re.search(rf"\bcalls::{name}\b", text)]


def untried(forwarded: set[str]) -> list[str]:
    text = "".join(path.read_text() for path in PROGRAMS.glob("*.cc"))
    taking = {name for name in forwarded if any(fnmatch.fnmatchcase(name, pattern) for pattern in TAKING)}
    return [f"{name} is forwarded, and no program in tests/shim_programs calls it" for name in sorted(taking)
            if not re.search(rf"\b{name}\(", text)]


def page_rows(names: list[str], treatment_of: dict[str, tuple[str, str]]) -> list[str]:
    """One row for each base name, or one for each group of its forms that are treated alike."""
    lines = []
    for call in sorted({base(name) for name in names}):
        groups: dict[tuple[str, str], list[str]] = {}
        for name in names:
            if base(name) == call:
                groups.setdefault(treatment_of[name], []).append(name)
        for (treatment, why), forms in groups.items():
            lines.append(f"| {call if len(groups) == 1 else ', '.join(forms)} | {treatment} | {why} |")
    return lines


def build_options(build: pathlib.Path) -> dict[str, str]:
    return dict(re.findall(r"^(\w+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M))


def main() -> None:
    options = build_options(pathlib.Path(sys.argv[1]))
    compiler, includes = options["CMAKE_CXX_COMPILER"], [str(ROOT), options["GPUMEM_CUDA_H"], options["GPUMEM_NVML_H"]]
    library = LIBRARIES["cuda"]
    names = set(header_calls(library, compiler, includes)) | listed_names(SHIM / "more_names.txt")
    replaced = {row.name: row for row in replaced_rows(library, compiler, includes)}
    answered = replaced_rows(LIBRARIES["nvml"], compiler, includes)
    findings = [f"{row.name}: unknown treatment {row.treatment}" for row in [*replaced.values(), *answered]
                if row.treatment not in TREATMENTS]
    findings += unfinished(replaced, names) + untested(replaced)
    used: set[Forwarded] = set()
    treatment_of: dict[str, tuple[str, str]] = {}
    rows = forwarded_rows()
    for name in sorted(names):
        fitting = [row for row in rows if fnmatch.fnmatchcase(base(name), row.pattern)]
        if name in replaced:
            treatment_of[name] = (replaced[name].treatment, replaced[name].why)
        elif fitting:
            used.update(fitting[:1])
            treatment_of[name] = ("forwarded", fitting[0].why)
        elif is_about_memory(name):
            findings.append(f"{name} is about memory, and neither calls.def nor forwarded.txt has a row for it")
    findings += untried({base(name) for name, (treatment, _) in treatment_of.items() if treatment == "forwarded"})
    dead = [row for row in rows if row not in used]
    lines = page_rows(sorted(treatment_of), treatment_of) + [f"| {row.name} | {row.treatment} | {row.why} |" for row in answered]
    page = HEAD + "\n".join(lines) + "\n"
    if "--fix" in sys.argv:
        PAGE.write_text(page)
        dead_lines = {row.line for row in dead}
        FORWARDED.write_text("".join(line for line in FORWARDED.read_text().splitlines(keepends=True)
                                     if line.rstrip("\n") not in dead_lines))
    elif "--rows" not in sys.argv:
        findings += [f"forwarded.txt: no call of the header is left for this row: {row.line}" for row in dead]
        if not PAGE.exists() or PAGE.read_text() != page:
            findings.append(f"docs/shim-calls.md is not what the code says; mend it: {sys.argv[0]} {sys.argv[1]} --fix")
    if findings:
        sys.exit("\n".join(findings))
    print(f"{len(names)} names, {len(treatment_of)} about memory, {len(replaced)} replaced")


if __name__ == "__main__":
    main()
