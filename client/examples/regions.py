"""Several processes on one copy of a model: this one publishes it, a child of it maps it.

    GPUMEM_RUNTIME_DIR=~/.gpumem python3 regions.py
    GPUMEM_RUNTIME_DIR=~/.gpumem gpumem-sim run ~/.gpumem/driver python3 regions.py    # no GPU: a simulated one
"""
import subprocess
import sys

import gpumem
import numpy


def publish() -> None:
    weights = {"decoder.weight": numpy.arange(1 << 20, dtype="float32").reshape(1024, 1024),
               "decoder.running_mean": numpy.zeros(1024, dtype="float32")}  # frameworks write to it: readers get copies
    with gpumem.Session.connect(label="publisher") as session:
        with gpumem.publish_arrays(session, "decoder", weights, metadata={"step": "7"}) as publication:
            print(f"published version {publication.version}, {publication.digest.hex()[:8]}", flush=True)
            subprocess.run([sys.executable, __file__, publication.digest.hex()], check=True)
            [device] = [usage for usage in session.usage() if usage.charged]
            print(f"{device.charged >> 20} MiB are charged")


def read(digest: str) -> None:
    with gpumem.Session.connect(label="reader") as session, session.map_region("decoder") as region:
        arrays = region.arrays(expect_digest=bytes.fromhex(digest))
        for array in arrays.values():
            print(f"{array.name}: {array.dtype} {array.shape}, {'read-only' if array.read_only else 'a copy'}")
        last = numpy.frombuffer(arrays["decoder.weight"].tobytes(), "float32")[-1]  # a copy on the host
        print(f"step {arrays.metadata['step']}, the last weight is {last:.0f}")


read(sys.argv[1]) if sys.argv[1:] else publish()
