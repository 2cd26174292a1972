"""Programs that know nothing of gpumem, by `gpumem run` in slices of several sizes and without it: whether they compute
the same, at what speed, whether the device that they see is the slice, and whether they ever hold more than that.

data: {programs: [{framework, way, slice, stages, verdict, why, peak, outside, charged, step_ns}], ratios: [{framework, way,
slice, ratio}]}: `slice` 0 is without gpumem; `peak` is by how much the device's used bytes grew at most, without what the driver
says that the program's processes hold themselves; `outside` is the latter without what they declared: their contexts. `charged`
is what the broker said at most, declared memory included; `ratio` is the time of a step in the slice by that without, of the
better of two tries.
"""
import dataclasses
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from broker import Broker
from nvml import Device, Nvml
from session import GIB, MIB, NO_TIME, Outcome, Session, amount, duration, table

from .frameworks import Framework

NAME = "unmodified"
TITLE = "Unmodified programs"
REQUIRED = False
LIMIT = 420
EACH_SECONDS = 60
WAYS = {"driver": ("blocks", "async"), "pytorch": ("caching", "expandable", "async", "graphs", "processes"),
        "jax": ("preallocate", "growing", "platform"), "cupy": ("pool", "async"), "tensorflow": ("whole", "growing")}
SLICES = (2 * GIB, 4 * GIB, 8 * GIB)
SAME_LOSS = 1e-3  # relative: kernels may be chosen by what memory they are given
SLOWEST = 1.01
LOOK_SECONDS = 0.05
# A context grows when kernels are loaded, and each process of a program has one: what is not the slice's.
CONTEXTS = GIB
# What the broker has ready for the next, and what the two looks of one moment differ by.
STOCK = 256 * MIB


class Watched(Framework):
    """A program whose use of the device is looked at all the time."""

    def __init__(self, session: Session, device: Device, broker: Broker, framework: str, way: str, size: int,
                 seconds: float):
        self._broker, self.before = broker, device.memory().used
        self.peak = self.outside = self.charged = 0
        self._strangers = {user.pid for user in device.processes()} | {broker.pid}
        variables = {"GPUMEM_ACCEPTANCE_WAY": way, "GPUMEM_ACCEPTANCE_STEPS": "30" if session.short else "300",
                     "GPUMEM_SHIM_FOLDER": str(session.layout.shim())}
        if session.driver_folder:
            variables["LD_LIBRARY_PATH"] = session.driver_folder
        prefix = [str(session.layout.program("gpumem")), "--runtime-dir", str(broker.runtime), "run", "--limit", str(size),
                  "--no-framework-settings", "--"] if size else []
        self._ended = threading.Event()
        self._looks = threading.Thread(target=self._watch, args=(device,))
        super().__init__(session, device, f"plain_{framework}", session.lendable, seconds, variables, prefix)
        self._looks.start()

    def _watch(self, device: Device) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            grown = device.memory().used - self.before
            own = sum({u.pid: u.used or 0 for u in device.processes() if u.pid not in self._strangers}.values())
            seen = (self._broker.ask("ps") or {"sessions": []})["sessions"]
            declared = sum(part["declared"] for s in seen for part in s["shared"])
            self.peak = max(self.peak, grown - own)
            self.outside = max(self.outside, own - declared)
            self.charged = max(self.charged, declared + sum(part["charged"] for s in seen for part in s["slices"]))

    def end(self) -> int:
        status = super().end()
        self._ended.set()
        self._looks.join()
        return status


def measure(session: Session, device: Device, broker: Broker, framework: str, way: str, size: int,
            seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {"framework": framework, "way": way, "slice": size, "stages": [], "verdict": "passed",
                             "why": "", "peak": 0, "outside": 0, "charged": 0, "step_ns": 0, "losses": []}
    if seconds < 5:
        return found | {"verdict": "skipped", "why": NO_TIME}
    program = Watched(session, device, broker, framework, way, size, seconds)
    stages = program.stages()
    status = program.end()
    at = {stage["stage"]: stage for stage in stages}
    if "missing" in at:
        return found | {"verdict": "skipped", "why": at["missing"]["why"]}
    found |= {"peak": program.peak, "outside": program.outside, "charged": program.charged}
    if trained := at.get("trained"):
        found |= {"losses": trained["losses"], "step_ns": round(statistics.median(trained.pop("times")))}
    if status != 0 or "end" not in at:
        last = stages[-1]["stage"] if stages else "nothing"
        wrong = [at["failed"]["why"] if "failed" in at else f"status {status}, or took too long, after: {last}"]
    else:
        wrong = complaints(found, at)
    return found | ({"verdict": "failed", "why": "; ".join(wrong)} if wrong else {})


def complaints(found: dict[str, Any], at: dict[str, Any]) -> list[str]:
    """What is not as it should be, of a program that came to its end."""
    size, context = found["slice"], at["context"]
    wrong = [] if at["trained"]["correct"] else ["what it computed is wrong"]
    if at["refused"]["wrong"]:
        wrong.append(f"asked for too much: {at['refused']['wrong']}")
    if not size:
        return wrong
    # Some frameworks tell a share of it, rounded.
    for total in (context["total"], context["seen"]):
        if total is not None and abs(total - size) > size // 1000:
            wrong.append(f"it sees a device of {amount(total)}, not of {amount(size)}")
    if found["charged"] > size:
        wrong.append(f"charged {amount(found['charged'])}")
    # A driver that does not tell what processes hold has their contexts in the peak.
    if found["peak"] > size + (STOCK if found["outside"] else CONTEXTS):
        wrong.append(f"the device's used memory grew by {amount(found['peak'])}")
    if found["outside"] > CONTEXTS:
        wrong.append(f"its contexts took {amount(found['outside'])}")
    return wrong


def compare(session: Session, outcome: Outcome, whole: dict[str, Any], part: dict[str, Any],
            again: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """One program in a slice beside the same without gpumem. Both are tried once more, by `again`, if it is slower."""
    who = f"{part['framework']}, {part['way']}, {amount(part['slice'])}"
    pairs = list(zip(whole["losses"], part["losses"]))
    if not pairs or any(abs(a - b) > SAME_LOSS * abs(a) for a, b in pairs):
        outcome.fail(f"{who}: the losses are not those without gpumem")
    ratio = part["step_ns"] / max(1, whole["step_ns"])
    if ratio > SLOWEST and not session.simulated:
        second, without = again(part["slice"]), again(0)
        if second["verdict"] == without["verdict"] == "passed":
            ratio = min(ratio, second["step_ns"] / max(1, without["step_ns"]))
    if ratio > SLOWEST:
        outcome.differs(f"{who}: a step", f"at most {SLOWEST} times as long as without gpumem", f"{ratio:.3f} times")
        if not session.simulated:  # there, steps are short, and the machine has other work
            outcome.fail(f"{who}: a step takes {ratio:.3f} times as long as without gpumem, in two tries")
    return {"framework": part["framework"], "way": part["way"], "slice": part["slice"], "ratio": round(ratio, 3)}


def run(session: Session) -> Outcome:
    if session.simulated and not session.host_python:  # any interpreter can run what needs no framework
        session = dataclasses.replace(session, host_python=sys.executable)
    if not session.host_python:
        return Outcome("skipped", "this machine has no python3 of its own", {"programs": [], "ratios": []})
    device = Nvml(session.driver_folder).device(session.device)
    deadline = time.monotonic() + session.limit - 15
    ways = {"driver": WAYS["driver"]} if session.simulated else WAYS
    slices = [256 * MIB, 2 * GIB] if session.short else [size for size in SLICES if size <= session.lendable // 2]
    outcome, found, ratios = Outcome(), [], []
    with Broker(session, session.lendable // 2 // (2 * MIB) * 2 * MIB) as broker:
        for framework, way in ((framework, way) for framework, all_ways in ways.items() for way in all_ways):
            tried = []

            def attempt(size: int, framework: str = framework, way: str = way) -> dict[str, Any]:
                seconds = min(EACH_SECONDS, deadline - time.monotonic())
                return measure(session, device, broker, framework, way, size, seconds)

            for size in [0, *slices]:
                tried.append(attempt(size))
                if tried[0]["verdict"] == "skipped":
                    break
            found += tried
            ratios += [compare(session, outcome, tried[0], part, attempt) for part in tried[1:]
                       if part["verdict"] == tried[0]["verdict"] == "passed"]
    outcome.data = {"programs": found, "ratios": ratios}
    outcome.tables += tables(found, ratios)
    outcome.judge_time(session, found)
    for program in found:
        if program["verdict"] == "failed":
            outcome.fail(f"{program['framework']}, {program['way']}, {amount(program['slice'])}: {program['why']}")
    return outcome


def tables(found: list[dict[str, Any]], ratios: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ratio = {(r["framework"], r["way"], r["slice"]): r["ratio"] for r in ratios}
    rows = [[p["framework"], p["way"], amount(p["slice"]) if p["slice"] else "none", p["verdict"], p["why"],
             amount(p["peak"]), amount(p["outside"]), amount(p["charged"]), duration(p["step_ns"]) if p["step_ns"] else "",
             ratio.get((p["framework"], p["way"], p["slice"]), "")] for p in found]
    return [table("By `gpumem run`, and without", ["program", "allocates by", "slice", "", "why", "device grew by",
                                                   "contexts", "charged", "a step", "times without"], rows)]
