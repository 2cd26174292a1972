"""A short run of gpumem_bench, against the driver under test."""
import json
import subprocess

from session import GIB, Outcome, Session, table

NAME = "benchmarks"
TITLE = "Benchmarks"
REQUIRED = True
LIMIT = 90
QUICK = "socket_round_trip|grpc_empty_call|broker_ping|grow_shrink"
# neighbour_under_storm takes longer than all others together.
USUAL = QUICK + "|session_open|session_idle|kill_reclaim"
KEYS = ("name", "run_name", "run_type", "repetitions", "repetition_index", "threads", "iterations", "real_time",
        "cpu_time", "time_unit", "family_index", "per_family_instance_index")


def run(session: Session) -> Outcome:
    pool = min(session.lendable, 24 * GIB)
    enough = pool >= 4 * GIB
    command = [str(session.layout.program("gpumem_bench")), f"--benchmark_min_time={0.05 if session.short else 0.3}",
               f"--benchmark_filter={USUAL if enough and not session.short else QUICK}",
               f"--benchmark_out={session.folder / 'bench.json'}", "--benchmark_out_format=json"]
    environment = session.environment() | {"GPUMEM_BENCH_POOL": str(pool)}
    outcome = Outcome()
    ended = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, timeout=session.limit - 3)
    if ended.returncode:
        outcome.fail(f"gpumem_bench ended with status {ended.returncode}")
        return outcome
    found = json.loads((session.folder / "bench.json").read_text())["benchmarks"]
    outcome.data = {"pool": pool, "benchmarks": [
        {"name": b["name"], "real_time": b["real_time"], "time_unit": b["time_unit"], "iterations": b["iterations"],
         "counters": {k: v for k, v in b.items() if k not in KEYS}} for b in found]}
    rows = [[b["name"], f"{b['real_time']:.4g} {b['time_unit']}", b["iterations"],
             ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in b["counters"].items())]
            for b in outcome.data["benchmarks"]]
    outcome.tables.append(table("One short run", ["benchmark", "time", "rounds", "counters"], rows))
    if any("error_occurred" in b for b in found):
        outcome.fail("a benchmark reports an error")
    if not found:
        outcome.fail("no benchmark ran")
    return outcome
