"""Frameworks of the host's own Python beside a broker: what their contexts and pools cost, what NVML sees of them,
what they ask for in a training step. Processes of a framework that share a region: whether they compute the same, who pays, how
long it takes. None is required; what is missing is named with the reason."""
import json
import statistics
import time
from typing import Any

from broker import Broker
from framework import Framework
from nvml import Device, Nvml
from session import GIB, MIB, NO_TIME, Outcome, Session, amount, duration, table

NAME = "frameworks"
TITLE = "Frameworks"
REQUIRED = False
LIMIT = 220
EACH_SECONDS = 35
ALL = ("cuda_bindings", "cupy_pool", "numba_arrays", "pytorch", "jax_xla")
SHARING = ("region_pytorch", "region_jax")
# Of a region, beyond its arrays: its layout, and what granularity adds.
BESIDE_ARRAYS = 4 * MIB


def measure(session: Session, device: Device, name: str, budget: int, seconds: float) -> dict[str, Any]:
    if seconds < 5:
        return {"framework": name, "stages": [], "verdict": "skipped", "why": NO_TIME}
    started = time.monotonic()
    before = device.memory().used
    framework = Framework(session, device, name, budget, seconds)
    stages = framework.stages()
    status = framework.end()
    found: dict[str, Any] = {"framework": name, "stages": stages, "status": status, "before": before,
                             "seconds": round(time.monotonic() - started, 1)}
    at = {stage["stage"]: stage for stage in stages}
    if "missing" in at:
        return found | {"verdict": "skipped", "why": at["missing"]["why"]}
    found |= {"version": at.get("imported", {}).get("version")}
    if status != 0 or "end" not in at:
        last = stages[-1]["stage"] if stages else "nothing"
        why = at["failed"]["why"] if "failed" in at else f"ended with status {status}, or took too long, after: {last}"
        return found | {"verdict": "failed", "why": why}
    found["context_bytes"] = at["context"]["device_used"] - before if "context" in at else None
    if "allocated" in at:
        found["asked"] = at["allocated"]["bytes"]
        found["grew"] = at["allocated"]["device_used"] - at["context"]["device_used"]
        found["attributed"] = at["allocated"]["attributed"]
    return found | {"verdict": "passed", "why": ""}


class Sharing(Framework):
    """A script whose processes map one region. All that the broker has lent is theirs."""

    def __init__(self, session: Session, device: Device, broker: Broker, name: str, seconds: float):
        self._broker = broker
        super().__init__(session, device, name, broker.pool() // 2, seconds, by_broker(session, broker))

    def look(self) -> dict[str, Any]:
        seen = (self._broker.ask("ps") or {"sessions": []})["sessions"]
        charges = [sum(part["charged"] for part in one["slices"]) for one in seen]
        return super().look() | {"sessions": len(seen), "charged": sum(charges)}


def by_broker(session: Session, broker: Broker) -> dict[str, str]:
    """Variables by which a program finds our package, our library and the broker."""
    layout = session.layout
    return {"GPUMEM_RUNTIME_DIR": str(broker.runtime), "GPUMEM_LIBRARY": str(layout.library()),
            "PYTHONPATH": str(layout.python_package())}


def share(session: Session, device: Device, broker: Broker, name: str, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {"framework": name, "stages": [], "verdict": "passed", "why": ""}
    if seconds < 5:
        return found | {"verdict": "skipped", "why": NO_TIME}
    script = Sharing(session, device, broker, name, seconds)
    found["stages"] = script.stages()
    status = script.end()
    at = {stage["stage"]: stage for stage in found["stages"]}
    if "missing" in at:
        return found | {"verdict": "skipped", "why": at["missing"]["why"]}
    found |= {"version": at.get("imported", {}).get("version")}
    wrong = wrong_with(at["shared"]) if "shared" in at else []
    if status != 0 or "end" not in at:
        wrong.append(at["failed"]["why"] if "failed" in at else f"ended with status {status}, or took too long")
    return found | ({"verdict": "failed", "why": "; ".join(wrong)} if wrong else {})


def wrong_with(shared: dict[str, Any]) -> list[str]:
    """The faults while all readers have the region mapped."""
    wrong = []
    if not all(reader["same"] for reader in shared["readers"]):
        wrong.append("readers compute other results than after loading the file")
    if not all(reader["in_place"] for reader in shared["readers"]):
        wrong.append("arrays of readers are copies")
    if not shared["bytes"] <= shared["charged"] <= shared["bytes"] + BESIDE_ARRAYS:
        wrong.append(f"{amount(shared['charged'])} are charged for one region of {amount(shared['bytes'])}")
    if shared["sessions"] != 1 + len(shared["readers"]):
        wrong.append(f"`gpumem ps` shows {shared['sessions']} sessions of a publisher and {len(shared['readers'])} readers")
    return wrong


def traces(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Takes the traces out of `found`, by framework: they are for replay, not for reading."""
    taken = {}
    for framework in found:
        for stage in framework["stages"]:
            if "trace" in stage:
                taken[framework["framework"]] = stage.pop("trace")
    return taken


def run(session: Session) -> Outcome:
    device = Nvml(session.driver_folder).device(session.device)
    outcome = Outcome()
    if session.simulated:
        return Outcome("skipped", "the simulated driver carries no CUDA runtime, which frameworks need",
                       {"frameworks": []})
    if not session.host_python:
        return Outcome("skipped", "this machine has no python3 of its own", {"frameworks": []})
    pool = session.lendable // 4 * 3 // (2 * MIB) * 2 * MIB
    rest = min(session.lendable - pool, 8 * GIB)
    deadline = time.monotonic() + session.limit - 10
    with Broker(session, pool) as broker:
        found = [measure(session, device, name, rest, min(EACH_SECONDS, deadline - time.monotonic())) for name in ALL]
        found += [share(session, device, broker, name, min(EACH_SECONDS, deadline - time.monotonic())) for name in SHARING]
    (session.folder / "traces.json").write_text(json.dumps({"traces": traces(found)}))
    outcome.data = {"python": session.host_python, "frameworks": found}
    outcome.tables += tables(found)
    for framework in found:
        if framework["verdict"] == "failed":
            outcome.fail(f"{framework['framework']}: {framework['why']}")
    outcome.judge_time(session, found)
    if outcome.verdict != "failed" and all(framework["verdict"] == "skipped" for framework in found):
        outcome.verdict, outcome.why = "skipped", f"{session.host_python} has none of them"
    return outcome


def tables(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def told(framework: dict[str, Any], key: str) -> str:
        return amount(framework[key]) if framework.get(key) is not None else ""
    rows = [[f["framework"], f.get("version") or "", f["verdict"], f["why"], told(f, "context_bytes"), told(f, "asked"),
             told(f, "grew"), told(f, "attributed")] for f in found]
    latencies = [[f["framework"], what, amount(timed["size"]), duration(timed["median_ns"]), duration(timed["p90_ns"])]
                 for f in found for stage in f["stages"] for what, timed in stage.get("latencies", {}).items()]
    shared = [[f["framework"], amount(stage["bytes"]), len(stage["readers"]), amount(stage["charged"]),
               *(duration(statistics.median(reader[which] for reader in stage["readers"]))
                 for which in ("load_ns", "first_ns", "later_ns"))]
              for f in found for stage in f["stages"] if stage["stage"] == "shared"]
    return [table("Beside a broker", ["framework", "version", "", "why", "context", "asked for", "device grew by",
                                      "NVML says of it"], rows),
            table("Allocators", ["framework", "what", "size", "median", "p90"], latencies),
            table("One region of weights, in several processes",
                  ["framework", "arrays", "readers", "charged in all", "load of the file", "first map", "later map"], shared)]
