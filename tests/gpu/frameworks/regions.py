"""The common part of region_*.py: one process publishes a file of weights, READERS others load the file into memory of
their own, map the region, and compute with both.

Stages: `imported`; `shared` {bytes, readers: [{same, in_place, load_ns, first_ns, later_ns}]}, while all have the region
mapped; `end`. `same`: the results are the same, bit for bit. `in_place`: the framework's arrays are the region's memory.
`load_ns`: from the file, which is in the page cache, to arrays on the device; `first_ns`, `later_ns`: from the name of the
region to arrays, in a process that starts the driver by it, and again. Or `missing`, `failed` as in stages.py.
"""
import dataclasses
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

import stages

READERS = 3
WIDTH = 1024  # of a layer, both ways
LAYER_BYTES = 4 * WIDTH * WIDTH


@dataclasses.dataclass(frozen=True)
class Way:
    """How a framework does it, on the GPU or, where that is simulated, in its memory on the host."""
    load: Callable[[Dict[str, Any]], Dict[str, Any]]  # NumPy's arrays to its own, on the device
    take: Callable[[Any], Dict[str, Any]]  # gpumem.Arrays to its own, in place
    address: Callable[[Any], int]
    compute: Callable[[List[Any]], bytes]  # by the weights of the layers


def write(path: pathlib.Path, layers: int) -> None:
    """A file of safetensors."""
    import numpy

    dice, header = numpy.random.default_rng(20), {}
    for number in range(layers):
        header[name_of(number)] = {"dtype": "F32", "shape": [WIDTH, WIDTH],
                                   "data_offsets": [number * LAYER_BYTES, (number + 1) * LAYER_BYTES]}
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _ in range(layers):
            out.write((dice.standard_normal((WIDTH, WIDTH), dtype="float32") / math.sqrt(WIDTH)).tobytes())


def name_of(layer: int) -> str:
    return f"layers.{layer:03}.weight"


def read(path: str) -> Dict[str, Any]:
    """One read, and views, as the package safetensors has it."""
    import numpy

    with open(path, "rb") as file:
        [length] = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        content = numpy.fromfile(file, "uint8")
    return {name: content[slice(*entry["data_offsets"])].view("float32").reshape(entry["shape"])
            for name, entry in header.items()}


def timed(work: Callable[[], Any]) -> Tuple[int, Any]:
    """(nanoseconds, the result)"""
    started = time.perf_counter_ns()
    found = work()
    return time.perf_counter_ns() - started, found


def map_and_load(way: Way, path: str) -> None:
    """In a reader: says what it found, and keeps the region mapped until its input ends."""
    import gpumem

    with gpumem.Session.connect(label="reader") as session:
        times = {}
        for which in ("first_ns", "later_ns"):
            region = arrays = mapped = None  # the first is unmapped
            times[which], (region, arrays, mapped) = timed(lambda: taken(way, session))
        times["load_ns"], loaded = timed(lambda: way.load(read(path)))
        same = way.compute(list(mapped.values())) == way.compute(list(loaded.values()))
        in_place = all(way.address(mapped[name]) == array.address for name, array in arrays.items())
        print(json.dumps({"same": same, "in_place": in_place, **times}), flush=True)
        sys.stdin.read()
        del region


def taken(way: Way, session: Any) -> Tuple[Any, Any, Dict[str, Any]]:
    region = session.map_region("weights")
    arrays = region.arrays()
    return region, arrays, way.take(arrays)


def is_simulated(session: Any) -> bool:
    import gpumem

    with gpumem.publish_arrays(session, "probe", {"byte": bytearray(1)}), session.map_region("probe") as region:
        return bool(region.arrays()["byte"].is_on_host)


def publish(framework: str, sees_gpu: Callable[[Any], bool]) -> None:
    """In the publisher: has readers do it, each as `SCRIPT FILE cuda|cpu`."""
    module = stages.use(framework)
    import gpumem
    import gpumem.safetensors

    path = pathlib.Path(os.environ["TMPDIR"], f"{framework}.safetensors")
    with gpumem.Session.connect(label="publisher") as session:
        simulated = is_simulated(session)
        if not simulated and not sees_gpu(module):
            stages.leave(f"{framework} sees no GPU (a build without CUDA, or a driver that is too old for it)")
        try:
            write(path, max(1, stages.piece() // LAYER_BYTES))
            with gpumem.safetensors.publish_safetensors(session, path, "weights") as publication:
                share(path, "cpu" if simulated else "cuda", sum(one.nbytes for one in publication.layout.arrays))
        finally:
            path.unlink(missing_ok=True)


def share(path: pathlib.Path, where: str, size: int) -> None:
    readers = [subprocess.Popen([sys.executable, "-B", sys.argv[0], str(path), where], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True) for _ in range(READERS)]
    try:
        lines = [reader.stdout.readline() for reader in readers if reader.stdout]
        if not all(lines):
            raise RuntimeError("a reader has ended; its words are in the log")
        stages.stage("shared", bytes=size, readers=[json.loads(line) for line in lines])
    finally:
        for reader in readers:
            reader.communicate()
    if any(reader.returncode for reader in readers):
        raise RuntimeError(f"readers ended with {[reader.returncode for reader in readers]}")


def play(framework: str, sees_gpu: Callable[[Any], bool], way_on: Callable[[str], Way]) -> None:
    """`way_on`: of a device, `cuda` or `cpu`."""
    if len(sys.argv) == 3:
        map_and_load(way_on(sys.argv[2]), sys.argv[1])
    else:
        stages.play(lambda: publish(framework, sees_gpu))
