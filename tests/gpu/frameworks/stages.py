"""The scripts' side of sections/frameworks.py: saying what was done, and waiting to be told to go on.

A script prints, in this order: `imported` {version}, `context`, `allocated` {bytes}, `freed`, then
`latencies` {latencies: {what: {size, count, median_ns, p10_ns, p90_ns}}} and `trace` {trace} if it can, `end`.
Where the framework is not there, or of no use: `missing` {why}. It never takes more than budget() bytes.
"""
import importlib
import json
import os
import sys
import time
import traceback
from types import ModuleType
from typing import Any, Callable, Dict, List, NoReturn

MIB = 1 << 20


def budget() -> int:
    return int(os.environ.get("GPUMEM_ACCEPTANCE_BUDGET", str(1 << 30)))


def piece() -> int:
    """The bytes that a script allocates once: an eighth of the budget, 512 MiB at most."""
    return max(2 * MIB, min(512 * MIB, budget() // 8) // (2 * MIB) * 2 * MIB)


def stage(name: str, **said: Any) -> str:
    """Says it, and waits. Answers the word that came: empty where the script is just to go on."""
    print(json.dumps({"stage": name, **said}), flush=True)
    line = sys.stdin.readline()
    if not line:
        sys.exit(1)  # nobody asks any more
    return line.strip()


def leave(why: str) -> NoReturn:
    """There is nothing to look at: the framework is missing, or made for machines without a GPU."""
    stage("missing", why=why)
    sys.exit(0)


def use(module: str) -> ModuleType:
    """The framework; the script ends here where it is missing or cannot be loaded."""
    try:
        found = importlib.import_module(module)
    except Exception as error:  # a framework that is half installed fails in its own ways
        leave(f"{type(error).__name__}: {error}"[:300])
    stage("imported", version=str(getattr(found, "__version__", "")))
    return found


def timed(work: Callable[[], object], size: int, seconds: float = 1.0, most: int = 500) -> Dict[str, int]:
    """Quantiles of what `work` takes: for `seconds`, `most` times at most."""
    samples: List[int] = []
    end = time.monotonic() + seconds
    while len(samples) < 5 or (time.monotonic() < end and len(samples) < most):
        start = time.perf_counter_ns()
        work()
        samples.append(time.perf_counter_ns() - start)
    samples.sort()

    def quantile(percent: int) -> int:
        return samples[(len(samples) - 1) * percent // 100]

    return {"size": size, "count": len(samples), "median_ns": quantile(50), "p10_ns": quantile(10),
            "p90_ns": quantile(90)}


def play(script: Callable[[], None]) -> None:
    """Runs a script; what it dies of is said."""
    try:
        script()
    except Exception as error:
        traceback.print_exc()
        stage("failed", why=f"{type(error).__name__}: {error}"[:300])
        sys.exit(1)
    stage("end")
