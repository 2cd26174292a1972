"""Programs as users bring them, in an image of their own: one of Python with the module gpumem, and one that knows the driver
alone, under the drop-in driver of the node. Each gets what its pod claims and is refused beyond it."""
from __future__ import annotations

import typing

import gpus
import pods
import workloads
from cluster import Cluster
from processes import Failed

GIB = 1024 * gpus.MIB
PYTHON = """
import sys
import gpumem
with gpumem.Session.connect(label="python") as session, session.open_slice() as borrowed:
    held = borrowed.grow(768 * gpumem.MIB)
    try:
        borrowed.grow(gpumem.GIB + 2 * gpumem.MIB)
        print("more than the limit was lent")
    except gpumem.OutOfMemory as why:
        print(f"refused: {why}")
    borrowed.grow(gpumem.GIB)
    print(f"{borrowed.committed >> 20} MiB, tenant {session.tenant};", flush=True)
    sys.stdin.read()
"""


def start(cluster: Cluster, name: str, command: list[str]) -> None:
    made = pods.pod(name, command, image=workloads.NAME, template="one", terminal=True)
    gpus.with_simulated_gpu(made)
    # Where a node with a GPU has the driver NVIDIA's specification puts it into a folder of the system.
    made["spec"]["containers"][0]["env"] = [{"name": "LD_LIBRARY_PATH", "value": "/run/gpumemd/driver"}]
    cluster.apply(made)


def await_words(cluster: Cluster, name: str, words: str) -> str:
    def said() -> str:
        text = cluster.kubectl("logs", name) if pods.phase(cluster, name) != "Pending" else ""
        if words not in text and pods.phase(cluster, name) in ("Failed", "Succeeded"):
            raise Failed(f"{name} has ended: {text}")
        return text if words in text else ""
    try:
        return cluster.until(f"{name} says '{words}'", said)
    except Failed as failure:
        raise Failed(f"{failure}\n{cluster.kubectl('describe', 'pod', name)}{gpus.show(cluster)}") from None


def check_python(cluster: Cluster) -> None:
    start(cluster, "python", ["python3", "-c", PYTHON])
    said = await_words(cluster, "python", "tenant ")
    if "refused: " not in said or "1024 MiB, tenant pod default/python;" not in said:
        raise Failed(f"a program of Python with 1 GiB says: {said}")
    gpus.await_ledger(cluster, {"python": GIB})


def check_driver_program(cluster: Cluster) -> None:
    """The program sees the claim as the whole device, and takes all of it."""
    start(cluster, "unchanged", ["driver_program"])
    said = await_words(cluster, "unchanged", "then error")
    if "1024 MiB of 1024; then error 2" not in said:
        raise Failed(f"a program that takes all of 1 GiB says: {said}")
    gpus.await_ledger(cluster, {"unchanged": GIB})


def run(cluster: Cluster, given: typing.Any) -> None:
    gpus.install(cluster, given, None, "driver.inject=preload")
    cluster.import_image(workloads.archive(given.work))
    cluster.apply(gpus.template("one", "1Gi"))
    check_python(cluster)
    gpus.remove_pods(cluster)
    check_driver_program(cluster)
    gpus.remove_pods(cluster)
