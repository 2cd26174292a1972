#!/usr/bin/env python3
"""clang-tidy over the product's own sources, as the build folder compiles them: where that is many files together, their
headers are read once. The rules: .clang-tidy.

    tests/checks/tidy.py BUILD_FOLDER

A source that was found good is not read again while it, all that it includes, the rules and clang-tidy are the same, in
whichever checkout (~/.cache/gpumem-tidy has one empty file for each). Exit status 1: something was found.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OURS = ("base", "shm", "cuda", "daemon", "client", "sim")
TIDY = ("clang-tidy-14", "--quiet", "--checks=-bugprone-suspicious-include", "--warnings-as-errors=*")
GOOD = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "gpumem-tidy"
KEPT_DAYS = 30
GXX_ALONE = re.compile(r" -Wno-maybe-uninitialized\b")
PRECOMPILED = re.compile(r"(-Xclang -include-pch -Xclang \S+ )?(-Xclang -include -Xclang|-include) \S+/cmake_pch\.hxx ")


def read_database(build):
    """How each source is compiled, without the compiler's precompiled headers (each includes what it needs), and without
    what clang does not know."""
    entries = json.loads((build / "compile_commands.json").read_text())
    for entry in entries:
        entry["command"] = GXX_ALONE.sub("", PRECOMPILED.sub("", entry["command"]))
        entry["file"] = str(pathlib.Path(entry["directory"], entry["file"]).resolve())
    return entries


def is_ours(build, file):
    generated = build in file.parents and "Unity" not in file.parts
    place = file.relative_to(build if build in file.parents else ROOT)
    return not generated and file.suffix != ".S" and place.parts[0] in OURS


def key(entry, rules):
    """Of all that clang-tidy would read, comments included: some of them are for it. None: it cannot be read."""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    command = ["clang++-14", *words[1:at], *words[at + 2:], "-E", "-C", "-w"]
    command.remove("-c")
    read = subprocess.run(command, cwd=entry["directory"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if read.returncode != 0:
        return None
    text = rules + read.stdout.replace(os.fsencode(ROOT), b"")
    return hashlib.sha256(text).hexdigest()


def check(entry, database, rules):
    """The findings in one source; empty if there are none."""
    good = key(entry, rules)
    if good and (GOOD / good).exists():
        (GOOD / good).touch()
        return ""
    done = subprocess.run([*TIDY, "-p", database, entry["file"]], cwd=ROOT, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode == 0:
        if good:
            (GOOD / good).touch()
        return ""
    told = [line for line in done.stderr.splitlines() if not re.search("warnings generated|warnings treated", line)]
    return done.stdout + "\n".join(told) or f"clang-tidy failed on {entry['file']}"


def forget_old():
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    for stamp in GOOD.iterdir():
        if stamp.stat().st_mtime < oldest:
            stamp.unlink(missing_ok=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    GOOD.mkdir(parents=True, exist_ok=True)
    forget_old()
    version = subprocess.run([TIDY[0], "--version"], check=True, capture_output=True).stdout
    rules = version + " ".join(TIDY).encode() + (ROOT / ".clang-tidy").read_bytes()
    entries = read_database(build)
    ours = {entry["file"]: entry for entry in entries if is_ours(build, pathlib.Path(entry["file"]))}
    with tempfile.TemporaryDirectory() as database:
        pathlib.Path(database, "compile_commands.json").write_text(json.dumps(entries))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
            found = 0
            for told in filter(None, threads.map(lambda entry: check(entry, database, rules), ours.values())):
                print(told, flush=True)
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
