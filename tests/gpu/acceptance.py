#!/usr/bin/env python3
"""Runs gpumem on this machine's GPU and writes down what it found: acceptance.json and acceptance.md.

Changes no setting of the GPU, takes at most 90% of the memory that is free when it starts, and leaves nothing behind
but OUT. With --simulated it makes a simulated machine instead. Exit status: 0 every required section passed,
1 not, 2 it cannot run here.
"""
import argparse
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import report
import running
import sections
from layout import Layout
from nvml import Device, Nvml, Unavailable
from session import Session, amount

WHOLE_SECONDS = 1100
SHARE_OF_FREE = 0.9
SIMULATED_MACHINE = "1x24GiB,1x8GiB"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-acceptance", description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--build", type=pathlib.Path, help="run the programs of a build folder")
    where.add_argument("--prefix", type=pathlib.Path, help="run the programs of an unpacked bundle")
    parser.add_argument("--simulated", action="store_true", help="on a simulated machine of two GPUs")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-acceptance-out"), metavar="FOLDER",
                        help="where the report goes (default gpu-acceptance-out)")
    parser.add_argument("--short", action="store_true", help="the short form, under a minute")
    parser.add_argument("--only", type=sections.named, default=sections.ALL, metavar="SECTION,...",
                        help="run these alone, of: " + ", ".join(section.NAME for section in sections.ALL))
    parser.add_argument("--seconds", type=float, default=WHOLE_SECONDS, help=f"end after so long (default {WHOLE_SECONDS})")
    parser.add_argument("--host-python", default=shutil.which("python3") or "", metavar="PROGRAM",
                        help="the python3 whose frameworks are tried (default: the first in PATH)")
    parser.add_argument("--programs", type=sections.programs, default="", metavar="PROGRAM,...",
                        help="of the unmodified programs these alone, of: " + ", ".join(sections.PROGRAMS))
    parser.add_argument("--section", help=argparse.SUPPRESS)
    parser.add_argument("--session", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def say(text: str) -> None:
    print(text, flush=True)


def usable(devices: list[Device]) -> list[Device]:
    """The devices that CUDA_VISIBLE_DEVICES permits, the one with the most free memory first."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        words = [word.strip() for word in named.split(",")]
        devices = [d for i, d in enumerate(devices) if any(w == str(i) or (w and d.uuid.startswith(w)) for w in words)]
    return sorted(devices, key=lambda device: -device.memory().free)


def prepare(options: argparse.Namespace, layout: Layout, work: pathlib.Path) -> Session:
    """Raises Unavailable: there is nothing to run on."""
    driver = ""
    if options.simulated:
        driver = str(work / "machine")
        subprocess.run([layout.program("gpumem-sim"), "create", driver, SIMULATED_MACHINE], check=True)
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    with Nvml(driver) as nvml:  # closed before the sections: some ask what becomes of a GPU that nobody has open
        return choose(options, layout, work, driver, usable(nvml.devices))


def choose(options: argparse.Namespace, layout: Layout, work: pathlib.Path, driver: str, devices: list[Device]) -> Session:
    """On the first of `devices`. Raises Unavailable."""
    if not devices:
        raise Unavailable("CUDA_VISIBLE_DEVICES hides every GPU")
    # Parts of a GPU in MIG mode have names of their own, which only the user's setting can choose.
    divided = any(device.mig_mode() == "on" for device in devices)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "") if divided else ",".join(d.uuid for d in devices[:2])
    return Session(root=str(layout.root), is_bundle=layout.is_bundle, simulated=options.simulated, driver_folder=driver,
                   device=devices[0].uuid, visible=visible, budget=int(devices[0].memory().free * SHARE_OF_FREE),
                   short=options.short, host_python=options.host_python, work=str(work), programs=options.programs)


def clean_up(layout: Layout, work: pathlib.Path) -> None:
    """Takes away the simulated machines that sections left, then the folder."""
    for machine in list(work.rglob("machine")):
        if machine.is_file():
            subprocess.run([layout.program("gpumem-sim"), "remove", machine.parent], capture_output=True)
    shutil.rmtree(work, ignore_errors=True)


def run_all(session: Session, options: argparse.Namespace, out: pathlib.Path) -> bool:
    started = time.monotonic()
    saved = session.folder / "session.json"
    session.save(saved)
    found = []
    (out / "log.txt").unlink(missing_ok=True)
    with (out / "log.txt").open("a", encoding="utf-8") as log:  # appended to by every process
        for section in options.only:
            limit = max(1.0, min(section.LIMIT, options.seconds - (time.monotonic() - started)))
            command = [*session.python, __file__, "--section", section.NAME, "--session", str(saved), "--limit", str(limit)]
            entry = running.run(section, session, command, limit, log)
            say(f"{entry['verdict']:7} {section.TITLE}, {entry['seconds']:.1f} s" + (f": {entry['why']}" if entry["why"] else ""))
            found.append(entry)
    traces = session.folder / "traces.json"
    if traces.exists():
        shutil.copy(traces, out / "traces.json")
    for trace in session.folder.glob("*.trace"):  # of allocations, for gpumem_bench
        shutil.copy(trace, out / trace.name)
    version = subprocess.run([session.layout.program("gpumemd"), "--version"], capture_output=True, text=True)
    whole = report.whole(found, gpumem=version.stdout.strip(), simulated=session.simulated, short=session.short,
                         seconds=round(time.monotonic() - started, 1))
    report.write(whole, out)
    say(f"the report: {out / 'acceptance.md'}")
    say(report.closing_line(whole))
    return bool(whole["ok"])


def main() -> int:
    options = parse()
    if options.section:
        session = dataclasses.replace(Session.load(options.session), limit=options.limit)
        running.play(sections.find(options.section), session)
        return 0
    if not (options.build or options.prefix):
        print("gpu-acceptance: say where the programs are: --build FOLDER or --prefix FOLDER", file=sys.stderr)
        return 2
    layout = Layout((options.prefix or options.build).resolve(), options.prefix is not None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work = pathlib.Path(tempfile.mkdtemp(prefix="gpumem-acceptance-"))
    work.chmod(0o711)  # clients of other users pass through
    try:
        session = prepare(options, layout, work)
        options.out.mkdir(parents=True, exist_ok=True)
        say(f"{'a simulated' if session.simulated else 'the real'} GPU {session.device}; at most {amount(session.budget)} of it")
        return 0 if run_all(session, options, options.out.resolve()) else 1
    except Unavailable as missing:
        print(f"gpu-acceptance: there is no NVIDIA driver to run on: {missing}\n"
              "Run it where nvidia-smi shows a GPU, or with --simulated on a simulated one.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        clean_up(layout, work)


if __name__ == "__main__":
    sys.exit(main())
