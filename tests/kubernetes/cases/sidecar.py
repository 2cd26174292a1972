"""The example of a broker as a sidecar, with a simulated GPU in the real one's place: both containers borrow as their users."""
from __future__ import annotations

import typing

import examples
import pods
from cluster import Cluster
from processes import Failed

TENANTS = {"serving": "16GiB", "batch": "4GiB"}


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
    cluster.kubectl("delete", "pod", "divided")
