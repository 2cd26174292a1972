"""How long every driver call that the project makes takes, by size."""
import json
import subprocess

from session import Outcome, Session, amount, duration, table

NAME = "latencies"
TITLE = "Driver calls"
REQUIRED = True
LIMIT = 70
MIB = 1 << 20
# Times of an H200 for 2 MiB without a context, in microseconds (bench/results/2026-11-27-h200.json).
ASSUMED_US = {"cuMemCreate": 12.4, "cuMemMap": 7.6, "cuMemSetAccess": 1020, "cuMemUnmap": 834}
FAR = 4  # times more or less is a difference
CONTEXT_ASSUMED = (100 * MIB, 550 * MIB)


def run(session: Session) -> Outcome:
    command = [str(session.layout.program("gpumem_driver_calls")), "--budget", str(session.lendable),
               "--seconds", "0.3" if session.short else "2.5"]
    if session.driver_folder:
        command += ["--driver-dir", session.driver_folder]
    timed = subprocess.run(command, env=session.environment(), stdout=subprocess.PIPE, text=True, timeout=session.limit - 3)
    outcome = Outcome()
    if timed.returncode:
        outcome.fail(f"gpumem_driver_calls ended with status {timed.returncode}")
        return outcome
    found = outcome.data = json.loads(timed.stdout)
    for failed in found["failed"]:
        where = f"{failed['extents']} x {amount(failed['size'])}, {'with' if failed['context'] else 'without'} a context"
        if failed["context"]:
            outcome.fail(f"{where}: {failed['error']}")
        else:
            outcome.differs("memory calls without a context", "work", f"{where}: {failed['error']}")
    outcome.tables += tables(found)
    compare(found, outcome, session)
    return outcome


def tables(found: dict) -> list[dict]:
    rows = [[c["call"], amount(c["size"]) if c["size"] else "", c["extents"] if c["extents"] > 1 else "",
             "yes" if c["context"] else "", c["count"], duration(c["median_ns"]), duration(c["p10_ns"]),
             duration(c["p90_ns"]), duration(c["min_ns"])] for c in found["calls"]]
    context = found["context"]
    return [table("Every call", ["call", "size", "extents", "context", "count", "median", "p10", "p90", "least"], rows),
            table("The first context of a process", ["time", "device memory"],
                  [[duration(context["first_ns"]), amount(context["device_bytes"])]]),
            table("Left out", ["size", "why"], [[amount(l["size"]), l["why"]] for l in found["left_out"]])]


def compare(found: dict, outcome: Outcome, session: Session) -> None:
    """Against what the project's texts assume of real GPUs."""
    if session.simulated:
        return
    for call in found["calls"]:
        assumed = ASSUMED_US.get(call["call"])
        if assumed is None or call["size"] != 2 * MIB or call["extents"] != 1 or call["context"]:
            continue
        seen = call["median_ns"] / 1000
        if not assumed / FAR <= seen <= assumed * FAR:
            outcome.differs(f"{call['call']} of 2 MiB", f"about {assumed} us", f"{seen:.3g} us")
    context = found["context"]["device_bytes"]
    if not CONTEXT_ASSUMED[0] <= context <= CONTEXT_ASSUMED[1]:
        outcome.differs("device memory of a context", "100 to 550 MiB", amount(context))
    if found["device"]["granularity"] != 2 * MIB:
        outcome.differs("granularity", "2 MiB", amount(found["device"]["granularity"]))
