"""The example of a broker as a sidecar, with a simulated GPU in the real one's place: both containers borrow as their users, and
keep what they have when the broker dies."""
from __future__ import annotations

import json
import os
import signal
import typing

import examples
import node
import pods
from cluster import Cluster
from processes import Failed

GIB = 1 << 30
TENANTS = {"serving": 16 * GIB, "batch": 4 * GIB}


def simulated(cluster: Cluster) -> list[dict[str, typing.Any]]:
    """The example without NVIDIA's claim, and without the drop-in driver: the library finds the simulated GPU itself."""
    objects = [part for part in examples.read(cluster, "sidecar.yaml") if part["kind"] != "ResourceClaimTemplate"]
    [pod] = [part for part in objects if part["kind"] == "Pod"]
    del pod["spec"]["resourceClaims"]
    for container in pod["spec"]["initContainers"] + pod["spec"]["containers"]:
        container["resources"] = {}
        for mount in container["volumeMounts"]:
            if mount["name"] == "sockets":
                mount["readOnly"] = False  # the simulated GPU is there, too
    for container in pod["spec"]["containers"]:
        del container["env"]
    [broker] = pod["spec"]["initContainers"]
    broker["env"] = [{"name": "GPUMEMD_OPTIONS", "value": "--simulate=1x24GiB"}]
    return objects


def charges(cluster: Cluster) -> dict[str, int]:
    said = json.loads(cluster.kubectl("exec", "divided", "-c", "broker", "--", "gpumem", "tenants", "--json"))
    return {one["tenant"]: one["charged"] for one in said["tenants"] if one["tenant"] in TENANTS}


def restarts(cluster: Cluster) -> dict[str, int]:
    status = cluster.get("pod", "divided")["status"]
    return {one["name"]: one["restartCount"] for one in status["initContainerStatuses"] + status["containerStatuses"]
            if one["started"]}


def check_death(cluster: Cluster) -> None:
    """Kubernetes starts the broker alone anew, and what it has lent stays lent."""
    before = charges(cluster)
    [broker] = node.processes_of_pod(cluster.get("pod", "divided")["metadata"]["uid"], "gpumemd")
    os.kill(broker, signal.SIGKILL)
    try:
        cluster.until("the broker alone was started anew",
                      lambda: restarts(cluster) == {"broker": 1} | dict.fromkeys(TENANTS, 0), seconds=60)
    except Failed as failure:
        said = cluster.kubectl("logs", "divided", "-c", "broker", "--previous")
        raise Failed(f"{failure}; restarts: {restarts(cluster)}; the broker: {said}") from None
    after = charges(cluster)
    if before != TENANTS or after != TENANTS:
        raise Failed(f"charged before the broker died: {before}, and after: {after}")


def run(cluster: Cluster, given: typing.Any) -> None:
    cluster.import_image(given.image)
    cluster.apply(*simulated(cluster))
    pods.await_phase(cluster, "divided", "Running", "Failed")
    try:
        for name in TENANTS:
            cluster.until(f"{name} has its memory",
                          lambda: f"tenant {name};" in cluster.kubectl("logs", "divided", "-c", name))
    except Failed as failure:
        words = [cluster.kubectl("logs", "divided", "-c", name) for name in ("broker", *TENANTS)]
        raise Failed("\n".join([str(failure), *words])) from None
    check_death(cluster)
    cluster.kubectl("delete", "pod", "divided")
