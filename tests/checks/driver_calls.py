#!/usr/bin/env python3
"""Holds docs/driver-calls.md against the simulated driver: every call that it exports, what becomes of it, and
the test that covers it. A call that is simulated and that no test names is a finding.

driver_calls.py BUILD_FOLDER [--fix]
"""
import pathlib
import re
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/driver-calls.md"
HEAD = """# The simulated driver's calls
Made by `tests/checks/driver_calls.py BUILD --fix`; `./dev check` holds it against the code. `libcuda.so.1` and
`libnvidia-ml.so.1` export every name of the headers that they are built with. A call is *simulated*, or *refused*:
it answers CUDA_ERROR_NOT_SUPPORTED or NVML_ERROR_NOT_SUPPORTED and its name is printed once. Older versions of a call
(`_v2` and so on) and its variants for the per-thread default stream stand under one name.
"""


class Library(NamedTuple):
    title: str
    declarations: str  # in the build folder
    result: str
    prefix: str


LIBRARIES = (Library("libcuda.so.1", "sim/generated/calls.h", "CUresult", "cu"),
             Library("libnvidia-ml.so.1", "sim/generated/nvml_calls.h", "nvmlReturn_t", "nvml"))


def base(name: str) -> str:
    return re.sub(r"_v\d+$", "", name)


def declared(library: Library, build: pathlib.Path) -> set[str]:
    text = (build / library.declarations).read_text()
    return {base(name) for name in re.findall(rf"^[\w *]+\b({library.prefix}[A-Z]\w*)\(", text, re.MULTILINE)}


def simulated(library: Library) -> set[str]:
    found = set()
    for path in sorted((ROOT / "sim").rglob("*.cc")):
        found |= {base(name) for name in re.findall(rf"\bapi::({library.prefix}[A-Z]\w*)\([^;{{}}]*\)\s*\{{", path.read_text())}
    return found


def covering_tests() -> dict[str, str]:
    """By call: the first test that names it; one of a fixture stands under the file."""
    covered: dict[str, str] = {}
    files = [path for suffix in ("cc", "h", "py") for path in (ROOT / "tests").rglob(f"*.{suffix}")]
    for path in sorted(files, key=lambda path: (path.suffix != ".cc", "contract" not in path.parts, str(path))):
        # Skips files that are no tests, and tests of the shim.
        if path.parent.name in ("checks", "stand_ins") or path.parent.name.startswith("shim"):
            continue
        test = ""
        for line in path.read_text().splitlines():
            if begins := re.match(r"TEST\w*\((\w+), (\w+)\)|def (test_\w+)\(", line):
                test = begins[3] or f"{begins[1]}.{begins[2]}"
            for name in re.findall(r"\b((?:cu|nvml)[A-Z]\w*)", line):
                covered.setdefault(base(name), f"{path.relative_to(ROOT)}" + (f": {test}" if test else ""))
    return covered


def section(library: Library, build: pathlib.Path, covered: dict[str, str], findings: list[str]) -> str:
    ours = simulated(library)
    refused = sorted(declared(library, build) - ours)
    lines = [f"\n## {library.title}: {len(ours)} simulated, {len(refused)} refused\n", "| call | covered by |", "|---|---|"]
    for name in sorted(ours):
        if name not in covered:
            findings.append(f"{name} is simulated, but no test names it")
        lines.append(f"| {name} | {covered.get(name, '')} |")
    return "\n".join(lines + ["\nRefused: " + ", ".join(refused) + ".", ""])


def main() -> None:
    build = pathlib.Path(sys.argv[1])
    findings: list[str] = []
    covered = covering_tests()
    page = HEAD + "".join(section(library, build, covered, findings) for library in LIBRARIES)
    if "--fix" in sys.argv:
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        findings.append(f"docs/driver-calls.md is not what the code says; mend it: {sys.argv[0]} {build} --fix")
    if findings:
        sys.exit("\n".join(findings))


if __name__ == "__main__":
    main()
