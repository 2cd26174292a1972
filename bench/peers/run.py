#!/usr/bin/env python3
"""gpumem's allocator beside those of other projects, as they publish them: RMM's pool, TensorFlow's, CuPy's and numba-cuda's.

    bench/peers/run.py [--build build/release] [--filter RE] [--costs PROFILE] [--json FILE] [--pages] [--small]

`./dev bench peers` sets up what it needs and runs it. It runs gpumem_peers_bench and python_pools.py, each with a broker of its own,
on a simulated device whose calls take the time of PROFILE. Prints the tables; --pages puts them into docs/allocator-measured.md,
and draws its picture of memory. --small: little of everything, as a test; status 77: something is not set up.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/allocator")]
sys.dont_write_bytecode = True
import draw  # noqa: E402  (bench/allocator/draw.py: tables)
import plot  # noqa: E402  (bench/plot.py)
from running_broker import running_broker  # noqa: E402

CACHE = ROOT / ".cache"
DEVICE, POOL = "1x640GiB", "128GiB"  # as gpumem_peers_bench
# Libraries of set_up.sh, and how much of the free memory each takes at its beginning, in percent.
NATIVE = {"rmm": "rmm.so", "rmm_half": "rmm.so:50", "bfc": "bfc.so"}
# Names in the figures, and in the tables.
PEERS = {"rmm": "RMM, from nothing", "rmm_half": "RMM, from half", "bfc": "TensorFlow", "cupy": "CuPy", "numba": "numba-cuda"}


def run(command: list, **words) -> str:
    """The program's output, if `words` ask for it. A program that fails ends this one."""
    done = subprocess.run(command, text=True, **words)
    if done.returncode:
        sys.exit(f"{pathlib.Path(command[0]).name} has failed: see above")
    return done.stdout


def run_native(asked: argparse.Namespace, file: pathlib.Path) -> list:
    """Each replay in a process of its own: its broker's memory is as that of a broker which has just started."""
    others = (f"{name}={CACHE}/peers/{library}" for name, library in NATIVE.items())
    command = [asked.build / "bench/peers/gpumem_peers_bench", *(word for other in others for word in ("--peer", other)),
               *(["--small"] if asked.small else [])]
    groups: dict = {}
    for name in run([*command, "--benchmark_list_tests"], stdout=subprocess.PIPE).splitlines():
        if re.search(asked.filter, name):
            groups.setdefault(re.match(r"pair|replay/\w+", name)[0], []).append(re.escape(name))
    found: list = []
    for names in groups.values():
        run([*command, f"--benchmark_filter=^({'|'.join(names)})$", f"--benchmark_out={file}", "--benchmark_out_format=json"],
            env={**os.environ, "GPUMEM_BENCH_COSTS": asked.costs}, stdout=subprocess.DEVNULL)
        counters = re.compile(rf"name|.*_ns|.*per_({'|'.join(NATIVE)})|.*_by_use_.*")
        found += [{key: value for key, value in one.items() if counters.fullmatch(key)}
                  for one in json.loads(file.read_text())["benchmarks"]]
        print(*names, "is measured" if len(names) == 1 else "are measured", file=sys.stderr)
    return found


def run_python(asked: argparse.Namespace, folder: pathlib.Path) -> list:
    runtime, config = f"{folder}/run", folder / "gpumemd.toml"
    config.write_text(f'[broker]\nreserve = "{POOL}"\nreconcile_seconds = 0\n')  # what CuPy takes is charged to nobody
    run([asked.build / "bench/allocator/gpumem_trace_generate", folder], stdout=subprocess.DEVNULL)
    paths = [CACHE / "python-suites/cupy", ROOT / "client/python/src"]
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{runtime}/driver", "GPUMEM_RUNTIME_DIR": runtime,
                   "GPUMEM_LIBRARY": str(asked.build / "client/libgpumem.so.0"), "PYTHONPATH": ":".join(map(str, paths))}
    with running_broker(asked.build, pathlib.Path(runtime), "--simulate", DEVICE, "--config", config):
        if asked.costs:
            run([asked.build / "sim/gpumem-sim", "costs", f"{runtime}/driver", asked.costs])
        few = ["--rounds", "1", "--filter", "size:256$|replay/small$"] if asked.small else ["--filter", asked.filter]
        figures = run([CACHE / "python/bin/python", "-B", ROOT / "bench/peers/python_pools.py", *few, folder], env=environment,
                      stdout=subprocess.PIPE)
    return json.loads(figures)


# ---- Tables ----

def pair_section(benchmarks: list) -> str:
    """A row for each other allocator, kind of stream and number of threads; a column for each size."""
    rows: dict = {}
    sizes: list = []
    for (python, kind, threads, size), one in draw.found(
            benchmarks, r"(?:(\w+)_)?pair/(\w+)(?:/threads:(\d))?/size:(\d+)").items():
        sizes += [size] if size not in sizes else []
        stream = "a stream of its own" if kind == "own" else "the default stream"
        for peer in PEERS:
            if f"per_{peer}" in one and (peer, kind) != ("bfc", "own"):  # it knows no streams
                where = f"{stream}, {threads or 1} thread{'s' if threads == '2' else ''}"
                rows.setdefault((PEERS[peer], where), {})[size] = f"{one[f'per_{peer}']:.2f}, {one['gpumem_ns']:.0f}"
    return draw.table(["by that of", "on"] + [draw.size_words(int(size)) for size in sizes],
                      [[*key] + [cells.get(size, "") for size in sizes] for key, cells in sorted(rows.items())])


def replay_section(benchmarks: list) -> str:
    native = draw.found(benchmarks, r"replay/(\w+)")
    of_cupy = draw.found(benchmarks, r"cupy_replay/(\w+)")
    traces = [trace for trace, in native] or [trace for trace, in of_cupy]

    def row(words: str, figures: dict, key: str) -> list:
        found = [figures.get((trace,), {}).get(key) for trace in traces]
        return [words] + ["" if value is None else f"{value:.{0 if value >= 100 else 2}f}" for value in found]

    times = [row(f"{which} replay, by {PEERS[peer]}", of_cupy if peer == "cupy" else native, f"{which}_per_{peer}")
             for which in ("first", "second") for peer in PEERS if peer != "numba"]
    memory = [row(f"{words}, {name}", of_cupy if peer == "cupy" else native, f"{key}_by_use_{peer}")
              for key, words in (("peak", "peak"), ("kept", "kept"))
              for peer, name in {"gpumem": "gpumem", **PEERS}.items() if peer != "numba"]
    return draw.table(["time"] + traces, times) + "\n\n" + draw.table(["memory by peak in use"] + traces, memory)


def draw_peaks(benchmarks: list) -> None:
    peaks: dict = {}
    for (trace,), one in draw.found(benchmarks, r"(?:cupy_)?replay/(\w+)").items():
        each = peaks.setdefault(trace, {})
        each |= {peer: one[f"peak_by_use_{peer}"] for peer in ("gpumem", *PEERS)
                 if f"peak_by_use_{peer}" in one and peer not in each}
    drawn = ("rmm", "bfc", "cupy")  # from half of a device, RMM is off the paper
    draw.draw_committed(peaks, {"gpumem": "gpumem"} | {peer: PEERS[peer] for peer in drawn})


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    words.add_argument("--filter", default="", help="only benchmarks whose names match")
    words.add_argument("--costs", default="", help="of the simulated driver's calls: h200, a100 or a file; default: none")
    words.add_argument("--json", type=pathlib.Path, help="where to write the figures")
    words.add_argument("--pages", action="store_true", help="write the tables into the page")
    words.add_argument("--small", action="store_true", help=argparse.SUPPRESS)
    asked = words.parse_args()
    for needed in ("peers/rmm.so", "peers/bfc.so", "python-suites/cupy", "python/bin/python"):
        if not (CACHE / needed).exists():
            print(f"gpumem: skipped: bench.peers_small_beside_others: there is no {CACHE / needed}: ./dev bench peers makes it")
            sys.exit(77)
    asked.build = asked.build.resolve()
    if asked.costs and "/" not in asked.costs:
        asked.costs = str(asked.build / f"sim/costs/{asked.costs}.costs")
    with tempfile.TemporaryDirectory(prefix="gpumem-peers-") as folder:
        benchmarks = run_native(asked, pathlib.Path(folder, "native.json")) + run_python(asked, pathlib.Path(folder))
    if asked.json:
        asked.json.write_text(json.dumps({"costs": pathlib.Path(asked.costs or "none").stem, "benchmarks": benchmarks}, indent=1) + "\n")
    sections = {"peer_pairs": pair_section(benchmarks), "peer_replays": replay_section(benchmarks)}
    print("\n\n".join(sections.values()))
    if asked.pages:
        page = draw.PAGE.read_text()
        for name, text in sections.items():
            page = plot.fill_in(page, name, text)
        draw.PAGE.write_text(page)
        draw_peaks(benchmarks)


if __name__ == "__main__":
    main()
