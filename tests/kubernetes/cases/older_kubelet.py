"""Kubelets of older versions than the control plane's. One without Dynamic Resource Allocation is offered nothing, and serves
pods by the device plugin. With the oldest that the DRA driver serves pods have what they claim, however they end, and keep it
when that kubelet is upgraded."""
from __future__ import annotations

import typing

import build
import gpus
import product
from cases import claims, endings, units
from cluster import Cluster
from processes import Failed


def install(cluster: Cluster, given: typing.Any, module: build.Module) -> None:
    cluster.install_node(build.kubelet(given.cache, module))
    cluster.await_kubelet(module.version_of(build.KUBERNETES))


def is_refused(cluster: Cluster) -> bool:
    """The driver says so, and the node offers no device."""
    try:
        said = cluster.kubectl("-n", "gpumem", "logs", "-l", gpus.SELECTOR, "-c", "driver", "--tail=-1")
    except Failed:  # this kubelet has not started yet what another case has installed
        return False
    return ("does not register gpumem.dev" in said
            and not any(one["spec"].get("devices") for one in gpus.slices(cluster)))


def check_without_dra(cluster: Cluster, given: typing.Any) -> None:
    """No pod is started without what it claims."""
    gpus.install(cluster, given, is_refused)
    cluster.apply(gpus.template("one", "1Gi"))
    gpus.Borrowers(cluster, product.image_name(given.image)).start("unserved", "one", "1GiB")
    endings.check_unserved(cluster, "unserved")
    cluster.kubectl("delete", "pod", "unserved")
    units.run(cluster, given)


def check_another_kubelet(cluster: Cluster, borrowers: gpus.Borrowers) -> None:
    """One pod ends while there is none."""
    borrowers.start("ending", "one", "1GiB")
    borrowers.await_memory("ending")
    cluster.stop("kubelet")
    cluster.kubectl("delete", "pod", "ending", "--wait=false")
    cluster.resume("kubelet")
    claims.check_kept(cluster)


def check_upgrade(cluster: Cluster, borrowers: gpus.Borrowers) -> None:
    cluster.upgrade_node()
    cluster.await_kubelet(build.CLUSTER.version_of(build.KUBERNETES))
    claims.check_kept(cluster)
    borrowers.start("later", "one", "1GiB")
    borrowers.await_memory("later")
    gpus.remove_pods(cluster)


def run(cluster: Cluster, given: typing.Any) -> None:
    install(cluster, given, build.KUBELET_WITHOUT_DRA)
    check_without_dra(cluster, given)
    install(cluster, given, build.OLDEST_KUBELET)
    endings.check_endings(cluster, given)
    borrowers = claims.check_amounts(cluster, given, tells_health=False)
    claims.check_restart(cluster)
    check_another_kubelet(cluster, borrowers)
    check_upgrade(cluster, borrowers)
