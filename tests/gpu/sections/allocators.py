"""Frameworks on gpumem's allocator, beside their own: whether they compute the same, whether `gpumem ps` shows them,
how long allocation and free take on each in the same run, and what they allocate in a training, for replay.

data: {frameworks: [{framework, on, stages, verdict, why}], examples: {file: what it printed},
ratios: [{framework, way, size, of, gpumem_ns, other_ns, ratio}]}: `ratio` above 1 is in favour of gpumem. pytorch.trace
and jax.trace lie beside the report.
"""
import json
import subprocess
import time
from typing import Any

from broker import Broker
from framework import Framework
from nvml import Device, Nvml
from session import MIB, NO_TIME, Outcome, Session, amount, duration, table
from traces import Trace, of_pytorch, of_xla

from .frameworks import by_broker

NAME = "allocators"
TITLE = "Allocators under frameworks"
REQUIRED = False
LIMIT = 150
EACH_SECONDS = 40
EXAMPLE_SECONDS = 20
# Script, and what it runs on.
ALL = (("gpumem_pytorch", "own"), ("gpumem_pytorch", "async"), ("gpumem_pytorch", "gpumem"), ("gpumem_cupy", "all"),
       ("gpumem_numba", "gpumem"), ("jax_trace", "own"))
# The stage at which each holds memory of gpumem.
HOLDS = {"gpumem_pytorch": "trained", "gpumem_cupy": "worked", "gpumem_numba": "worked"}
EXAMPLES = {"gpumem_pytorch": "torch_allocate.py", "gpumem_cupy": "cupy_allocate.py"}
SAME_LOSS = 1e-3  # relative: kernels may be chosen by what memory they are given


class Borrowing(Framework):
    """A script that borrows, looked at by `gpumem ps`, too."""

    def __init__(self, session: Session, device: Device, broker: Broker, name: str, on: str, seconds: float):
        self._broker = broker
        super().__init__(session, device, name, broker.pool() // 2, seconds,
                         by_broker(session, broker) | {"GPUMEM_ALLOCATOR": on})

    def look(self) -> dict[str, Any]:
        seen = [s for s in (self._broker.ask("ps") or {"sessions": []})["sessions"] if s["pid"] == self.pid]
        charged = sum(part["charged"] for s in seen for part in s["slices"])
        return super().look() | {"sessions": len(seen), "charged": charged}


def measure(session: Session, device: Device, broker: Broker, name: str, on: str, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {"framework": name, "on": on, "stages": [], "verdict": "passed", "why": ""}
    if seconds < 5:
        return found | {"verdict": "skipped", "why": NO_TIME}
    script = Borrowing(session, device, broker, name, on, seconds)
    found["stages"] = script.stages()
    status = script.end()
    at = {stage["stage"]: stage for stage in found["stages"]}
    if "missing" in at:
        return found | {"verdict": "skipped", "why": at["missing"]["why"]}
    wrong = complaints(name, on, at)
    if status != 0 or "end" not in at:
        wrong.append(at["failed"]["why"] if "failed" in at else f"ended with status {status}, or took too long")
    return found | ({"verdict": "failed", "why": "; ".join(wrong)} if wrong else {})


def complaints(name: str, on: str, at: dict[str, Any]) -> list[str]:
    """The faults of a script that reached this stage."""
    held = at.get(HOLDS.get(name, ""))
    if held is None:
        return []
    right = held["correct"]
    is_right = all(right.values()) if isinstance(right, dict) else right
    wrong = [] if is_right else [f"content is wrong: {right}"]
    if on != "own" and on != "async" and held["charged"] < held["bytes"]:
        wrong.append(f"`gpumem ps` shows {amount(held['charged'])} where {amount(held['bytes'])} are held")
    return wrong


def run_examples(session: Session, broker: Broker, found: list[dict[str, Any]], outcome: Outcome) -> None:
    """As a user starts them: those whose framework is there."""
    outcome.data["examples"] = {}
    for framework in [f for f in found if f["verdict"] == "passed" and f["on"] in ("gpumem", "all")]:
        if name := EXAMPLES.get(framework["framework"]):
            try:
                ended = subprocess.run([session.host_python, "-B", session.layout.examples() / name], check=True,
                                       env=session.environment() | by_broker(session, broker), stdout=subprocess.PIPE,
                                       text=True, timeout=EXAMPLE_SECONDS)
                outcome.data["examples"][name] = ended.stdout.splitlines()
            except subprocess.SubprocessError as error:
                outcome.fail(f"{name}: {error}")


def stage_of(found: list[dict[str, Any]], framework: str, on: str, stage: str) -> dict[str, Any] | None:
    return next((said for f in found if (f["framework"], f["on"]) == (framework, on)
                 for said in f["stages"] if said["stage"] == stage), None)


Timed = list[dict[str, Any]]  # as frameworks/pairs.py says


def compare(framework: str, way: str, ours: Timed, others: dict[str, Timed]) -> list[dict[str, Any]]:
    """The ratios of one way to allocate, by size and peer."""
    mine = {timed["size"]: timed["median_ns"] for timed in ours}
    return [{"framework": framework, "way": way, "size": timed["size"], "of": peer, "gpumem_ns": mine[timed["size"]],
             "other_ns": timed["median_ns"], "ratio": round(timed["median_ns"] / max(1, mine[timed["size"]]), 2)}
            for peer, all_timed in others.items() for timed in all_timed if timed["size"] in mine]


def ratios(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    ours = stage_of(found, "gpumem_pytorch", "gpumem", "pairs")
    peers = {"caching allocator": stage_of(found, "gpumem_pytorch", "own", "pairs"),
             "cudaMallocAsync": stage_of(found, "gpumem_pytorch", "async", "pairs")}
    for way in ("tensors", "raw"):
        if ours:
            rows += compare("PyTorch", way, ours[way], {name: said[way] for name, said in peers.items() if said})
    cupy = stage_of(found, "gpumem_cupy", "all", "pairs")
    if cupy:
        timed = cupy["allocators"]
        others = {name: timed[name] for name in ("pool", "cudaMallocAsync") if name in timed}
        rows += compare("CuPy", "gpumem", timed["gpumem"], others)
    return rows


def losses_differ(found: list[dict[str, Any]]) -> str:
    """Of the same training on PyTorch's own memory and on ours; empty where they are the same."""
    own, ours = (stage_of(found, "gpumem_pytorch", on, "trained") for on in ("own", "gpumem"))
    if not own or not ours:
        return ""
    pairs = zip(own["losses"], ours["losses"])
    return "" if all(abs(a - b) <= SAME_LOSS * abs(a) for a, b in pairs) else f"{own['losses']} and {ours['losses']}"


def write_traces(session: Session, found: list[dict[str, Any]]) -> list[list[Any]]:
    """pytorch.trace, from what the section before recorded, and jax.trace. Answers a row for each."""
    traces: dict[str, Trace] = {}
    recorded = session.folder / "traces.json"
    if recorded.exists():
        traces["pytorch"] = of_pytorch(json.loads(recorded.read_text())["traces"].get("pytorch", []))
    for framework in found:
        for said in framework["stages"]:
            if said["stage"] == "log":
                traces["jax"] = of_xla(said.pop("lines"))
    for name, trace in traces.items():
        if trace.lines:
            text = trace.text(f"{name}: a small training, recorded by gpu-acceptance")
            (session.folder / f"{name}.trace").write_text(text)
    return [[name, len(trace.lines) or "none: this version does not tell"] for name, trace in traces.items()]


def run(session: Session) -> Outcome:
    nothing: dict[str, Any] = {"frameworks": [], "ratios": []}
    if session.simulated:
        return Outcome("skipped", "the simulated driver carries no CUDA runtime, which frameworks need", nothing)
    if not session.host_python:
        return Outcome("skipped", "this machine has no python3 of its own", nothing)
    device = Nvml(session.driver_folder).device(session.device)
    deadline = time.monotonic() + session.limit - 10 - 2 * EXAMPLE_SECONDS
    pool = session.lendable // 2 // (2 * MIB) * 2 * MIB
    outcome = Outcome()
    with Broker(session, pool) as broker:
        found = [measure(session, device, broker, name, on, min(EACH_SECONDS, deadline - time.monotonic()))
                 for name, on in ALL]
        run_examples(session, broker, found, outcome)
    traces = write_traces(session, found)
    outcome.data |= {"python": session.host_python, "frameworks": found, "ratios": ratios(found)}
    outcome.tables += tables(found, outcome.data["ratios"], traces)
    for framework in found:
        if framework["verdict"] == "failed":
            outcome.fail(f"{framework['framework']} on {framework['on']}: {framework['why']}")
    outcome.judge_time(session, found)
    if differing := losses_differ(found):
        outcome.fail(f"PyTorch's losses on its own memory and on gpumem's: {differing}")
    slower = [row for row in outcome.data["ratios"] if row["ratio"] < 1]
    for row in slower:
        outcome.differs(f"{row['framework']}, {row['way']}, {amount(row['size'])}", f"not slower than {row['of']}",
                        f"{duration(row['gpumem_ns'])} against {duration(row['other_ns'])}")
    if all(framework["verdict"] == "skipped" for framework in found):
        outcome.verdict, outcome.why = "skipped", f"{session.host_python} has none of them"
    return outcome


def tables(found: list[dict[str, Any]], compared: list[dict[str, Any]],
           traces: list[list[Any]]) -> list[dict[str, Any]]:
    def charged(framework: dict[str, Any]) -> str:
        held = stage_of(found, framework["framework"], framework["on"], HOLDS.get(framework["framework"], ""))
        return amount(held["charged"]) if held else ""

    programs = [[f["framework"], f["on"], f["verdict"], f["why"], charged(f)] for f in found]
    rows = [[r["framework"], r["way"], amount(r["size"]), duration(r["gpumem_ns"]), r["of"], duration(r["other_ns"]),
             r["ratio"]] for r in compared]
    return [table("Programs", ["script", "on", "", "why", "`gpumem ps` says"], programs),
            table("Allocation and free",
                  ["framework", "way", "size", "gpumem", "peer", "it takes", "times gpumem's"], rows),
            table("Traces", ["framework", "calls"], traces)]
