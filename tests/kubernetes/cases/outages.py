"""The API server is away, the kubelet is another one, the node boots: pods have what they claim, and nothing is left over."""
from __future__ import annotations

import time
import typing

import gpus
import pods
from cluster import Cluster
from gpus import Borrowers
from processes import Failed

AWAY_SECONDS = 60
GIB = 1024 * gpus.MIB


def check_without_api_server(cluster: Cluster, borrowers: Borrowers) -> None:
    """Longer than the driver waits for it: what is prepared stays so, and what comes later is prepared as before."""
    borrowers.start("staying", "one", "1GiB")
    borrowers.await_memory("staying")
    cluster.stop("kube-apiserver")
    time.sleep(AWAY_SECONDS)  # it is the outage
    cluster.resume("kube-apiserver")
    gpus.await_ledger(cluster, {"staying": GIB})
    borrowers.start("later", "one", "1GiB")
    borrowers.await_memory("later")
    gpus.await_ledger(cluster, {"staying": GIB, "later": GIB})


def check_another_kubelet(cluster: Cluster, borrowers: Borrowers) -> None:
    """One pod ends while there is none."""
    cluster.stop("kubelet")
    cluster.kubectl("delete", "pod", "later", "--wait=false")
    cluster.resume("kubelet")
    gpus.await_ledger(cluster, {"staying": GIB})
    gpus.remove_pods(cluster)


def check_boot(cluster: Cluster, borrowers: Borrowers) -> None:
    """Every process of the node ends at once, and its memory, sockets and device specifications with them."""
    made = borrowers.made("again", "one", "1GiB")
    made["spec"]["restartPolicy"] = "Always"
    cluster.apply(made)
    borrowers.await_memory("again")
    cluster.boot_node()
    try:
        cluster.until("the pod was started anew", lambda: pods.restarts(cluster, "again") > 0)
        gpus.await_daemon_set(cluster)
    except Failed as failure:
        raise Failed(f"{failure}\n{cluster.kubectl('describe', 'pods', '-A')}{gpus.show(cluster)}") from None
    gpus.await_ledger(cluster, {"again": GIB})
    if "tenant pod default/again" not in cluster.kubectl("logs", "again"):
        raise Failed(f"after the node has booted the pod says: {cluster.kubectl('logs', 'again')}")
    gpus.remove_pods(cluster)


def run(cluster: Cluster, given: typing.Any) -> None:
    borrowers = gpus.borrowers(cluster, given, one="1Gi")
    check_without_api_server(cluster, borrowers)
    check_another_kubelet(cluster, borrowers)
    check_boot(cluster, borrowers)
