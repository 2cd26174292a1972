"""The device plugin in the DRA driver's place: pods get what their units are worth, a third waits, none gets more."""
from __future__ import annotations

import typing

import gpus
import pods
import product
from cluster import Cluster
from gpus import Borrowers
from processes import Failed

RESOURCE = "gpumem.dev/memory-256Mi"
UNIT = 256 * gpus.MIB
# One for all pods: the plugin does not learn in time for which pod a container is.
SPECIFICATIONS = 1


def offered(cluster: Cluster) -> int:
    [node] = cluster.get("nodes")["items"]
    return int(node["status"]["allocatable"].get(RESOURCE, 0))


def start(cluster: Cluster, borrowers: Borrowers, name: str, units: int, held: str) -> None:
    made = borrowers.made(name, "", held)
    made["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: str(units)}}
    cluster.apply(made)


def await_ledger(cluster: Cluster, units: dict[str, int]) -> None:
    gpus.await_ledger(cluster, {name: count * UNIT for name, count in units.items()}, specifications=SPECIFICATIONS)


def check_limit(cluster: Cluster, borrowers: Borrowers) -> None:
    start(cluster, borrowers, "greedy", 4, "2GiB")
    pods.await_phase(cluster, "greedy", "Failed", "Succeeded")
    said = cluster.kubectl("logs", "greedy")
    if "limit" not in said:
        raise Failed(f"a pod with units of 1 GiB that asks for 2 was told: {said}")
    cluster.kubectl("delete", "pod", "greedy")


def run(cluster: Cluster, given: typing.Any) -> None:
    gpus.install(cluster, given, offered, "mode=devicePlugin")
    if (count := offered(cluster)) != 86:  # 90% of 24 GiB
        raise Failed(f"the node offers {count} units")
    borrowers = Borrowers(cluster, product.image_name(given.image))
    start(cluster, borrowers, "first", 32, "8GiB")
    start(cluster, borrowers, "second", 48, "12GiB")
    await_ledger(cluster, {"first": 32, "second": 48})
    start(cluster, borrowers, "third", 32, "8GiB")
    cluster.until("no node takes the third pod", lambda: pods.unschedulable(cluster, "third"))
    check_limit(cluster, borrowers)
    cluster.kubectl("delete", "pod", "first")
    await_ledger(cluster, {"second": 48, "third": 32})
    cluster.stop("kubelet")
    cluster.resume("kubelet")
    cluster.kubectl("-n", "gpumem", "rollout", "restart", "daemonset/gpumem")
    gpus.await_daemon_set(cluster)
    await_ledger(cluster, {"second": 48, "third": 32})
    cluster.kubectl("delete", "pods", "--all", "--wait=true")
    await_ledger(cluster, {})
