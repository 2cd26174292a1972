#!/usr/bin/env python3
"""Holds the man pages against `--help`: every long option stands in both, every command of gpumem has a page.
Usage: man_pages.py BUILD_FOLDER"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = {"gpumemd.8": "daemon/gpumemd",
            "gpumem-dra.8": "daemon/kubernetes/gpumem-dra",
            "gpumem-device-plugin.8": "daemon/kubernetes/device_plugin/gpumem-device-plugin",
            "gpumem-history.8": "daemon/history/gpumem-history",
            "gpumem-sim.1": "sim/gpumem-sim",
            "gpumem.1": "client/cli/gpumem"}
OPTION = re.compile(r"--[a-z][a-z-]+")
EVERYWHERE = {"--help", "--version", "--runtime-dir"}  # gpumem.1 tells of them for all commands


def output_of(*words: object) -> str:
    return subprocess.run([*map(str, words)], capture_output=True, text=True).stdout


def commands(gpumem: pathlib.Path, *words: str) -> list[str]:
    return [line.split("\t")[0] for line in output_of(gpumem, "__complete", *words, "").splitlines()]


def helped(gpumem: pathlib.Path, command: str) -> set[str]:
    lines = [[command], *([command, below] for below in commands(gpumem, command))]
    return {option for words in lines for option in OPTION.findall(output_of(gpumem, *words, "--help"))}


def differences(page: str, options: set[str], ignored: set[str] = frozenset()) -> int:
    path = ROOT / "docs/man" / page
    if not path.exists():
        print(f"there is no page {page}")
        return 1
    wrong = 0
    for option in sorted((options ^ set(OPTION.findall(path.read_text().replace("\\-", "-")))) - ignored):
        print(f"{page}: {option} stands only in {'--help' if option in options else 'the man page'}")
        wrong += 1
    rendered = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True)
    if rendered.returncode or rendered.stderr:
        print(f"{page}: {rendered.stderr}")
        wrong += 1
    return wrong


def main() -> int:
    build = pathlib.Path(sys.argv[1])
    wrong = 0
    gpumem = build / PROGRAMS["gpumem.1"]
    names = commands(gpumem)
    options = {name: helped(gpumem, name) for name in names}
    for page, program in PROGRAMS.items():
        of_commands = set().union(*options.values()) - EVERYWHERE if page == "gpumem.1" else set()
        wrong += differences(page, set(OPTION.findall(output_of(build / program, "--help"))), of_commands)
    for name in names:
        wrong += differences(f"gpumem-{name}.1", options[name], EVERYWHERE)
        if f"gpumem-{name} (1)" not in (ROOT / "docs/man/gpumem.1").read_text():
            print(f"gpumem.1 does not name gpumem-{name}(1)")
            wrong += 1
    print(f"{len(PROGRAMS) + len(names)} man pages, {wrong} differences")
    return 1 if wrong or not names else 0


if __name__ == "__main__":
    sys.exit(main())
