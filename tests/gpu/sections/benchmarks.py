"""A short run of gpumem_bench and gpumem_shim_bench, against the driver under test.

data: {pool, benchmarks, shim}: of each program [{name, real_time, time_unit, iterations, counters}].
"""
import json
import subprocess
import time
from typing import Any

from session import GIB, Outcome, Session, table

NAME = "benchmarks"
TITLE = "Benchmarks"
REQUIRED = True
LIMIT = 180
QUICK = "socket_round_trip|grpc_empty_call|broker_ping|grow_shrink"
# neighbour_under_storm takes longer than all others together.
USUAL = QUICK + "|session_open|session_idle|kill_reclaim|first_allocation|growth_curve"
SHIM_QUICK = "forwarded_call|alloc_free"
SHIM_USUAL = SHIM_QUICK + "|growth|segments|start_up"
KEYS = ("name", "run_name", "run_type", "repetitions", "repetition_index", "threads", "iterations", "real_time",
        "cpu_time", "time_unit", "family_index", "per_family_instance_index")


def measure(session: Session, program: str, chosen: str, environment: dict[str, str], seconds: float, outcome: Outcome) -> list[dict[str, Any]]:
    """The results of `program`, for `data`."""
    file = session.folder / f"{program}.json"
    command = [str(session.layout.program(program)), f"--benchmark_min_time={0.05 if session.short else 0.2}",
               f"--benchmark_filter={chosen}", f"--benchmark_out={file}", "--benchmark_out_format=json"]
    try:
        ended = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, timeout=seconds)
    except subprocess.TimeoutExpired:
        outcome.fail(f"{program} took longer than {seconds:.0f} s")
        return []
    if ended.returncode:
        outcome.fail(f"{program} ended with status {ended.returncode}")
        return []
    found = json.loads(file.read_text())["benchmarks"]
    if any("error_occurred" in b for b in found):
        outcome.fail(f"a benchmark of {program} reports an error")
    if not found:
        outcome.fail(f"no benchmark of {program} ran")
    return [{"name": b["name"], "real_time": b["real_time"], "time_unit": b["time_unit"], "iterations": b["iterations"],
             "counters": {k: v for k, v in b.items() if k not in KEYS}} for b in found]


def rows(found: list[dict[str, Any]]) -> list[list[Any]]:
    return [[b["name"], f"{b['real_time']:.4g} {b['time_unit']}", b["iterations"],
             ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in b["counters"].items())] for b in found]


def run(session: Session) -> Outcome:
    deadline = time.monotonic() + session.limit - 3
    pool = min(session.lendable, 24 * GIB)
    whole = pool >= 4 * GIB and not session.short
    environment = session.environment() | {"GPUMEM_BENCH_POOL": str(pool)}
    outcome = Outcome(data={"pool": pool})
    for key, program, quick, usual in (("benchmarks", "gpumem_bench", QUICK, USUAL), ("shim", "gpumem_shim_bench", SHIM_QUICK, SHIM_USUAL)):
        found = measure(session, program, usual if whole else quick, environment, deadline - time.monotonic(), outcome)
        outcome.data[key] = found
        outcome.tables.append(table(f"One short run of {program}", ["benchmark", "time", "rounds", "counters"], rows(found)))
    return outcome
