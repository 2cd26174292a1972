#!/usr/bin/env python3
"""gpumem's Python adapters beside the frameworks' own memory: CuPy's pool and numba-cuda's manager, in turns.

    bench/peers/python_pools.py [--rounds 5] [--filter RE] TRACES

run.py starts it, with a broker in its environment. A pair is an allocation whose result is dropped at once, while eight blocks of
that size are held. CuPy also replays the traces in the folder TRACES, twice in one allocator. Prints JSON: medians, and medians of
the rounds' ratios, gpumem's time by the other's.
"""
import argparse
import json
import pathlib
import re
import statistics
import sys
import time

IDLE_SECONDS = 3  # more than gpumem keeps unused memory for
HELD = 8
TURNS, PAIRS = 11, 500  # of a round: short, since programs beside this one then slow down few of them
SIZES = [256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]


def pair_ns(allocate, size: int, count: int) -> float:
    held = [allocate(size) for _ in range(HELD)]
    begun = time.perf_counter_ns()
    for _ in range(count):
        allocate(size)
    took = time.perf_counter_ns() - begun
    del held
    return took / count


def in_turns(rounds: int, turns: int, measures: dict) -> dict:
    """{NAME_ns, per_NAME} of {name: what answers nanoseconds}, gpumem's first. A round's time is the median of its turns."""
    times: dict = {name: [] for name in measures}
    for _ in range(rounds):
        taken = [{name: measure() for name, measure in measures.items()} for _ in range(turns)]
        for name, each in times.items():
            each.append(statistics.median(turn[name] for turn in taken))
    own = times["gpumem"]
    found = {f"{name}_ns": statistics.median(each) for name, each in times.items()}
    return found | {f"per_{name}": statistics.median(mine / other for mine, other in zip(own, each))
                    for name, each in times.items() if name != "gpumem"}


def pairs(rounds: int, allocators: dict, size: int) -> dict:
    for allocate in allocators.values():
        pair_ns(allocate, size, PAIRS)
    return in_turns(rounds, TURNS, {name: lambda allocate=allocate: pair_ns(allocate, size, PAIRS)
                                    for name, allocate in allocators.items()})


def read_trace(path: pathlib.Path) -> list:
    """[(block, bytes, stream)]; 0 bytes: it is freed."""
    calls = []
    for line in path.read_text().splitlines():
        words = line.split()
        if words and words[0] == "a":
            calls.append((int(words[1]), int(words[2]), int(words[3])))
        elif words and words[0] == "f":
            calls.append((int(words[1]), 0, 0))  # both free in the order of the stream of the allocation
    return calls


def peak_in_use(calls: list) -> int:
    sizes: dict = {}
    now = most = 0
    for block, size, _ in calls:
        now += size - (sizes.pop(block) if not size else 0)
        if size:
            sizes[block] = size
        most = max(most, now)
    return most


def replay_ns(allocate, calls: list, streams: list) -> float:
    held, current = {}, None
    begun = time.perf_counter_ns()
    for block, size, stream in calls:
        if size:
            if stream != current:
                streams[stream].use()
                current = stream
            held[block] = allocate(size)
        else:
            del held[block]
    took = time.perf_counter_ns() - begun
    streams[0].use()
    return took / len(calls)


def replays(rounds: int, session, path: pathlib.Path) -> dict:
    """A fresh allocator of each in every round, which replays the trace twice."""
    import cupy
    import gpumem.cupy

    calls = read_trace(path)
    streams = [cupy.cuda.Stream.null] + [cupy.cuda.Stream(non_blocking=True) for _ in range(max(one[2] for one in calls))]
    used = peak_in_use(calls)
    times: dict = {"first": {"gpumem": [], "cupy": []}, "second": {"gpumem": [], "cupy": []}}
    found: dict = {}
    for number in range(rounds):
        pool, ours = cupy.cuda.MemoryPool(), session.open_allocator()
        for name, allocate in (("gpumem", gpumem.cupy.allocator(ours)), ("cupy", pool.malloc)):
            for which in ("first", "second"):
                times[which][name].append(replay_ns(allocate, calls, streams))
        if number + 1 == rounds:
            time.sleep(IDLE_SECONDS)
            figures = ours.statistics()
            found = {"peak_by_use_gpumem": figures.peak_committed / used, "kept_by_use_gpumem": figures.committed / used,
                     "peak_by_use_cupy": pool.total_bytes() / used, "kept_by_use_cupy": pool.total_bytes() / used}
        del allocate
        ours.close()
        pool.free_all_blocks()
        while any(usage.charged for usage in session.usage()):  # until it is proved free
            time.sleep(0.01)
    for which, each in times.items():
        measured = in_turns(rounds, 1, {name: lambda values=iter(values): next(values) for name, values in each.items()})
        found |= {f"{which}_{name}": value for name, value in measured.items()}
    return found


def numba_pairs(rounds: int, size: int) -> dict:
    """Of memory managers of one context: an array that is dropped waits to be freed together with others."""
    import gpumem.numba
    from numba import cuda
    from numba.cuda.cudadrv.driver import NumbaCUDAMemoryManager

    context = cuda.current_context()
    managers = {"gpumem": gpumem.numba.GpumemMemoryManager(context=context), "numba": NumbaCUDAMemoryManager(context=context)}
    found = pairs(rounds, {name: manager.memalloc for name, manager in managers.items()}, size)
    for manager in managers.values():
        manager.reset()
    return found


def measure(rounds: int, wanted: str, traces: pathlib.Path) -> list:
    import cupy
    import gpumem
    import gpumem.cupy

    found = []

    def add(name: str, work) -> None:
        if re.search(wanted, name):
            figures = work()
            found.append({"name": name} | figures)
            print(f"{name:40}", *(f"{key}={value:.3g}" for key, value in figures.items()), file=sys.stderr)

    with gpumem.Session.connect(label="peers") as session:
        ours, pool = session.open_allocator(), cupy.cuda.MemoryPool()
        allocators = {"gpumem": gpumem.cupy.allocator(ours), "cupy": pool.malloc}
        for kind, stream in (("own", cupy.cuda.Stream(non_blocking=True)), ("default", cupy.cuda.Stream.null)):
            with stream:
                for size in SIZES:
                    add(f"cupy_pair/{kind}/size:{size}", lambda size=size: pairs(rounds, allocators, size))
        del allocators, pool
        ours.close()
        for size in SIZES:
            add(f"numba_pair/default/size:{size}", lambda size=size: numba_pairs(rounds, size))
        for path in sorted(traces.glob("*.trace")):
            add(f"cupy_replay/{path.stem}", lambda path=path: replays(rounds, session, path))
    return found


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--filter", default="")
    words.add_argument("traces", type=pathlib.Path)
    asked = words.parse_args()
    print(json.dumps(measure(asked.rounds, asked.filter, asked.traces)))


if __name__ == "__main__":
    main()
