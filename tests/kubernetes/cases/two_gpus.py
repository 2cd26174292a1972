"""The example of one pod with amounts of two GPUs: it has what it claims of each, and no more."""
from __future__ import annotations

import pathlib
import shutil
import typing

import examples
import gpus
import pods
from cluster import Cluster
from processes import Failed

GIB = 1024 * gpus.MIB


def two_devices(cluster: Cluster) -> bool:
    return sum(len(one["spec"]["devices"]) for one in gpus.slices(cluster)) == 2


def remove_installed(cluster: Cluster) -> None:
    """Removes the release of another case, and its simulated GPU."""
    cluster.kubectl("-n", "gpumem", "delete", "daemonset", "gpumem", "--ignore-not-found")
    cluster.until("broker and driver are gone", lambda: not cluster.get("pods", "-n", "gpumem")["items"])
    shutil.rmtree("/run/gpumemd", ignore_errors=True)
    pathlib.Path("/run/gpumemd").mkdir()


def run(cluster: Cluster, given: typing.Any) -> None:
    remove_installed(cluster)
    gpus.install(cluster, given, two_devices, "simulate=2x16GiB")
    examples.start(cluster, "two-gpus.yaml")
    pods.await_phase(cluster, "across", "Running", "Failed")
    tenant = "tenant pod default/across;"
    cluster.until("the pod has memory of both", lambda: cluster.kubectl("logs", "across").count(tenant) == 2)
    rows = [one for one in gpus.gpumem(cluster, "tenants")["tenants"] if one["tenant"] == "pod default/across"]
    if [one["charged"] for one in rows] != [4 * GIB, 4 * GIB] or sorted(one["limit"] for one in rows) != [4 * GIB, 6 * GIB]:
        raise Failed(f"a pod with 4 and 6 GiB of two GPUs that holds 4 of each: {rows}")
    gpus.remove_pods(cluster)
