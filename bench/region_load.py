#!/usr/bin/env python3
"""Time that a region saves each process that needs a model: mapping it, compared with loading its file.

    bench/region_load.py [--build build/release] [--mib 1024] [--rounds 5] [--framework numpy|tensorflow|jax|torch]
                         [--driver-dir FOLDER] [--strict]

Starts a broker, writes a file of safetensors into a temporary folder (in --folder; the page cache holds it),
publishes it, and starts a fresh process for each round, which loads the file and maps the region, in turns which comes
first. Both end with the framework's tensors, of which one element each is read. Run it by a Python that has NumPy and the
framework. Prints medians and the ratio; aims: 50 at 1 GiB, and 5 ms per GiB for a later map. `publish`: the file to the
region, once. `first` has the process's start of the driver and its context in it, `later` has not.

The device is simulated, unless --driver-dir names another driver's folder (empty: the system's), or $GPUMEM_DRIVER_DIR does. On a
GPU the framework is not NumPy. Exit status 1, with --strict: an aim is missed, the ratio by the first map or a later one.
"""
import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from running_broker import running_broker

ROOT = pathlib.Path(__file__).resolve().parents[1]
TENSOR_MIB = 8
MIB = 1 << 20
LEAST_RATIO = 50
MOST_MAP_MS_PER_GIB = 5


def write_file(path: pathlib.Path, mib: int) -> None:
    import numpy

    size, header = TENSOR_MIB * MIB, {}
    for number in range(mib // TENSOR_MIB):
        header[f"layer.{number}"] = {"dtype": "F32", "shape": [size // 4096, 1024],
                                     "data_offsets": [number * size, (number + 1) * size]}
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for number in range(len(header)):
            out.write(numpy.full(size // 4, number, "float32").tobytes())


def loaded(path: str) -> dict:
    """A file's arrays in this process's own memory, as the package safetensors loads them: one read, and views."""
    import numpy

    with open(path, "rb") as file:
        [length] = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        content = numpy.fromfile(file, "uint8")
    return {name: content[entry["data_offsets"][0]:entry["data_offsets"][1]].view("float32").reshape(entry["shape"])
            for name, entry in header.items()}


def frameworks(name: str, device: str) -> tuple:
    """(arrays of NumPy to tensors on the device, `cpu` or `cuda`; a region to tensors), of a framework that has started."""
    if name == "tensorflow":
        import tensorflow as tf
        from gpumem.tensorflow import tensors

        tf.constant(0)
        return (lambda arrays: {one: tf.constant(array) for one, array in arrays.items()}), tensors
    if name == "jax":
        import jax.numpy
        from gpumem.jax import arrays as tensors

        jax.numpy.zeros(1)
        return (lambda arrays: {one: jax.numpy.array(array) for one, array in arrays.items()}), tensors
    if name == "torch":
        import torch
        from gpumem.torch import tensors

        torch.zeros(1, device=device)
        return (lambda arrays: {one: torch.from_numpy(array).to(device) for one, array in arrays.items()}), tensors
    import numpy  # noqa: F401, before the clock runs

    return (lambda arrays: arrays), (lambda region: {one: array.numpy() for one, array in region.arrays().items()})


def use(tensors: dict) -> float:
    return sum(float(tensor[-1, -1]) for tensor in tensors.values())


def timed(work) -> tuple:
    """(milliseconds, the result)"""
    start = time.perf_counter_ns()
    found = work()
    return (time.perf_counter_ns() - start) / 1e6, found


def measure(name: str, path: str, file_first: bool, device: str) -> None:
    """In the fresh process: prints what it saw as JSON."""
    import gpumem

    of_file, of_region = frameworks(name, device)
    figures = {}
    with gpumem.Session.connect(label="reader") as session:
        def by_file() -> None:
            figures["load"], total = timed(lambda: use(of_file(loaded(path))))
            figures.setdefault("total", total)
            assert total == figures["total"]

        def by_region() -> None:
            for which in ("first", "later"):
                figures[which], region = timed(lambda: session.map_region("model"))
                figures[f"{which}_tensors"], total = timed(lambda: use(of_region(region)))
                figures.setdefault("total", total)
                assert total == figures["total"]
                region.close()

        for work in (by_file, by_region) if file_first else (by_region, by_file):
            work()
    print(json.dumps(figures))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--framework", default="numpy", choices=["numpy", "tensorflow", "jax", "torch"])
    parser.add_argument("--folder", help="for the file; default: the system's temporary folder")
    parser.add_argument("--driver-dir", default=os.environ.get("GPUMEM_DRIVER_DIR"), metavar="FOLDER",
                        help="of another driver than the simulated one; empty: the system's")
    parser.add_argument("--strict", action="store_true", help="fail if an aim is missed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpumem-region-", dir=options.folder) as folder:
        return run(options, pathlib.Path(folder))


def run(options: argparse.Namespace, folder: pathlib.Path) -> int:
    path, runtime = folder / "model.safetensors", folder / "run"
    write_file(path, options.mib)
    os.environ |= {"GPUMEM_RUNTIME_DIR": str(runtime), "GPUMEM_LIBRARY": str(options.build / "client/libgpumem.so.0"),
                   "PYTHONPATH": str(ROOT / "client/python/src"), "TF_CPP_MIN_LOG_LEVEL": "3",
                   "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    sys.path.insert(0, os.environ["PYTHONPATH"])
    with running_broker(options.build, runtime, *broker_options(options, folder)):
        figures = report(options, *rounds(options, path))
    print(json.dumps(figures, indent=2))
    missed = missed_aims(figures)
    for aim in missed:
        print(f"missed: {aim}", file=sys.stderr)
    return 1 if options.strict and missed else 0


def broker_options(options: argparse.Namespace, folder: pathlib.Path) -> list:
    if options.driver_dir is None:
        return ["--simulate", f"1x{options.mib + 1024}MiB"]
    config = folder / "bench.toml"
    config.write_text(f'[broker]\nreserve = "{options.mib + 64}MiB"\n')
    return ["--config", config, *(["--driver-dir", options.driver_dir] if options.driver_dir else [])]


def missed_aims(figures: dict) -> list:
    """What each says. Below 1 GiB a load takes less, in proportion, and a map as long as there."""
    gib = figures["mib"] / 1024
    least, most = LEAST_RATIO * min(1.0, gib), MOST_MAP_MS_PER_GIB * max(1.0, gib)
    missed = [f"loading takes {figures[ratio]} times as long as the {which} map, not {least:g}"
              for which, ratio in (("first", "load_per_first"), ("later", "load_per_later")) if figures[ratio] < least]
    if figures["later_map_ms"] > most:
        missed.append(f"a later map takes {figures['later_map_ms']} ms, more than {most:g}")
    return missed


def rounds(options: argparse.Namespace, path: pathlib.Path) -> tuple:
    import gpumem
    from gpumem.safetensors import publish_safetensors

    with gpumem.Session.connect(label="publisher") as session:
        published, publication = timed(lambda: publish_safetensors(session, path, "model", progress=sys.stderr.isatty()))
        with publication:
            with session.map_region("model") as region:
                device = "cpu" if next(iter(region.arrays().values())).is_on_host else "cuda"
            if device == "cpu":
                os.environ["JAX_PLATFORMS"] = "cpu"
            return published, [json.loads(subprocess.run(
                [sys.executable, __file__, "--measure", options.framework, path, str(number % 2), device], check=True, text=True,
                stdout=subprocess.PIPE).stdout) for number in range(options.rounds)]


def report(options: argparse.Namespace, published: float, found: list) -> dict:
    def median(of) -> float:
        return statistics.median(of(one) for one in found)

    first, later = (median(lambda one: one[which] + one[f"{which}_tensors"]) for which in ("first", "later"))
    load = median(lambda one: one["load"])
    return {
        "framework": options.framework, "mib": options.mib, "publish_ms": round(published, 1), "load_ms": round(load, 1),
        "first_map_ms": round(median(lambda one: one["first"]), 2), "first_map_to_tensors_ms": round(first, 2),
        "later_map_ms": round(median(lambda one: one["later"]), 2), "later_map_to_tensors_ms": round(later, 2),
        "load_per_first": round(median(lambda one: one["load"] / (one["first"] + one["first_tensors"])), 1),
        "load_per_later": round(median(lambda one: one["load"] / (one["later"] + one["later_tensors"])), 1),
        "later_map_ms_per_gib": round(median(lambda one: one["later"]) * 1024 / options.mib, 2)}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], sys.argv[3], sys.argv[4] == "1", sys.argv[5])
    else:
        sys.exit(main())
