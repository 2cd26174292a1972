#!/usr/bin/env python3
"""Holds the man pages against `--help`: every long option stands in both. Usage: man_pages.py BUILD_FOLDER"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = {"daemon/gpumemd": ("gpumemd.8", [[]]),
            "daemon/kubernetes/gpumem-dra": ("gpumem-dra.8", [[]]),
            "daemon/kubernetes/device_plugin/gpumem-device-plugin": ("gpumem-device-plugin.8", [[]]),
            "client/cli/gpumem": ("gpumem.1", [[], ["status"], ["ps"], ["tenants"], ["reconcile"],
                                                ["why"], ["events"], ["regions"], ["regions", "rm"],
                                                ["publish"], ["cat"], ["verify"], ["quota"], ["quota", "set"],
                                                ["quota", "reset"], ["run"], ["reserve"], ["job", "create"],
                                                ["job", "list"], ["job", "end"], ["check"],
                                                ["system", "enable"], ["system", "disable"], ["system", "status"]]),
            "sim/gpumem-sim": ("gpumem-sim.1", [[]])}
OPTION = re.compile(r"--[a-z][a-z-]+")


def main() -> int:
    build = pathlib.Path(sys.argv[1])
    wrong = 0
    for program, (page, subcommands) in COMMANDS.items():
        helped: set[str] = set()
        for words in subcommands:
            done = subprocess.run([build / program, *words, "--help"], capture_output=True, text=True)
            helped |= set(OPTION.findall(done.stdout))
            if words and words[0] not in (ROOT / "docs/man" / page).read_text():
                print(f"{page} lacks the command {words[0]}")
                wrong += 1
        source = (ROOT / "docs/man" / page).read_text().replace("\\-", "-")
        documented = set(OPTION.findall(source))
        for option in sorted(helped ^ documented):
            print(f"{page}: {option} stands only in {'--help' if option in helped else 'the man page'}")
            wrong += 1
        rendered = subprocess.run(["man", "--warnings", "-l", str(ROOT / "docs/man" / page)], capture_output=True, text=True)
        if rendered.returncode or rendered.stderr:
            print(f"{page}: {rendered.stderr}")
            wrong += 1
    print(f"{len(COMMANDS)} man pages, {wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
