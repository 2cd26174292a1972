#!/usr/bin/env python3
"""acceptance_test.py BUILD: the acceptance's short form on a simulated machine, its report, and what it leaves."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

COMMAND = pathlib.Path(__file__).resolve().parent / "acceptance.py"
SECTIONS = ["facts", "contract", "latencies", "footprint", "demo", "benchmarks", "frameworks", "allocators", "drop_in", "unmodified"]
MOST_FILES = 8


def check(report: dict, out: pathlib.Path) -> list[str]:
    wrong = []
    if [section["name"] for section in report["sections"]] != SECTIONS:
        wrong.append("sections are missing")
    skippable = {"frameworks", "allocators"} | ({"demo"} if os.geteuid() != 0 else set())
    for section in report["sections"]:
        expected = "skipped" if section["name"] in skippable else "passed"
        if section["verdict"] != expected:
            wrong.append(f"{section['name']}: {section['verdict']} {section['why']} {section['stderr'][-5:]}")
        if section["verdict"] == "skipped" and not section["why"]:
            wrong.append(f"{section['name']} is skipped without a word")
    data = {section["name"]: section["data"] for section in report["sections"]}
    calls = {(c["call"], c["size"]) for c in data["latencies"].get("calls", [])}
    for size in (2 << 20, 64 << 20, 1 << 30, 4 << 30):
        if ("cuMemCreate", size) not in calls:
            wrong.append(f"no figure of cuMemCreate of {size} bytes")
    if not data["contract"].get("tests"):
        wrong.append("no test of the contract")
    if len(list(out.iterdir())) > MOST_FILES:
        wrong.append("too many files")
    return wrong


def without_a_driver(build: str) -> list[str]:
    """A machine without a GPU is told so; nothing is simulated behind one's back."""
    if pathlib.Path("/dev/nvidiactl").exists():
        return []
    with tempfile.TemporaryDirectory() as out:
        refused = subprocess.run([sys.executable, "-B", COMMAND, "--build", build, "--out", out], capture_output=True, text=True)
        silent = "--simulated" not in refused.stderr or list(pathlib.Path(out).iterdir())
        return ["without a GPU it does not say so"] if refused.returncode != 2 or silent else []


def main() -> int:
    build = sys.argv[1]
    wrong = without_a_driver(build)
    with tempfile.TemporaryDirectory(prefix="gpumem-accepted-") as scratch:
        temporary, out = pathlib.Path(scratch, "tmp"), pathlib.Path(scratch, "out")
        temporary.mkdir()
        os.chmod(scratch, 0o711)
        os.chmod(temporary, 0o711)
        ended = subprocess.run([sys.executable, "-B", COMMAND, "--build", build, "--simulated", "--short", "--out", out],
                               env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.PIPE, text=True)
        print(ended.stdout)
        wrong += check(json.loads((out / "acceptance.json").read_text()), out)
        wrong += [f"left behind: {path}" for path in temporary.iterdir()]
        if ended.returncode != 0:
            wrong.append(f"status {ended.returncode}")
        if not ended.stdout.splitlines()[-1].startswith("acceptance: "):
            wrong.append("no closing line")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
