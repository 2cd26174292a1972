"""Two pods get what they claim of one GPU, a third waits, two share; none gets more than it claims, or any without a claim."""
from __future__ import annotations

import os
import signal
import typing
import urllib.request

import examples
import gpus
import node
import pods
from cluster import Cluster
from gpus import Borrowers
from processes import Failed


METRICS_PORT = 9400
# What `check_amounts` leaves.
HELD = {"second": 12288 * gpus.MIB, "third": 8192 * gpus.MIB}


def check_slice(cluster: Cluster) -> None:
    [slice_] = cluster.get("resourceslices")["items"]
    [device] = slice_["spec"]["devices"]
    if not device.get("allowMultipleAllocations") or "memory" not in device["capacity"]:
        raise Failed(f"the node offers no amounts of memory: {device}")


def check_health(cluster: Cluster, name: str) -> None:
    """The pod's status says that its device is well: the kubelet has it from the driver."""
    def said() -> list[str]:
        [status] = cluster.get("pod", name)["status"]["containerStatuses"]
        return [one.get("health", "") for resource in status.get("allocatedResourcesStatus", [])
                for one in resource.get("resources", [])]
    cluster.until(f"the device of {name} is healthy", lambda: said() == ["Healthy"])


def check_metrics(cluster: Cluster) -> None:
    """Another machine reads at the port of the broker's pod who has what."""
    [pod] = cluster.get("pods", "-n", "gpumem", "-l", gpus.SELECTOR)["items"]
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:{METRICS_PORT}/metrics", timeout=10) as answer:
        told = answer.read().decode()
    if 'gpumem_tenant_limit_bytes{tenant="pod default/first"' not in told:
        raise Failed(f"the metrics tell nothing of the first pod: {told[:2000]}")


def check_limit(cluster: Cluster, borrowers: Borrowers) -> None:
    """A pod gets no more than it has claimed, whatever it asks for."""
    borrowers.start("greedy", "one", "2GiB")
    pods.await_phase(cluster, "greedy", "Failed", "Succeeded")
    said = cluster.kubectl("logs", "greedy")
    if "tenant" in said and "press Enter" in said or "limit" not in said:
        raise Failed(f"a pod that claims 1 GiB and asks for 2 was told: {said}")
    cluster.kubectl("delete", "pod", "greedy")


def check_shared(cluster: Cluster) -> None:
    """The example of two pods that share a claim: they are one tenant, and it has what both hold."""
    names = examples.start(cluster, "shared-claim.yaml")
    for name in names:
        pods.await_phase(cluster, name, "Running", "Failed")
        cluster.until(f"{name} has its memory", lambda: "tenant claim default/ten;" in cluster.kubectl("logs", name))
    [tenant] = [one for one in gpus.gpumem(cluster, "tenants")["tenants"] if one["tenant"] == "claim default/ten"]
    if (tenant["charged"], tenant["limit"]) != (10240 * gpus.MIB, 10240 * gpus.MIB):
        raise Failed(f"two pods that share a claim of 10 GiB: {tenant}")
    cluster.kubectl("delete", "pod", names[0])
    cluster.until("the other has the rest alone", lambda: gpus.charges(cluster) == {"claim default/ten": 4096 * gpus.MIB})
    gpus.remove_pods(cluster)
    cluster.kubectl("delete", "resourceclaim", "ten")


def check_higher_limit(cluster: Cluster) -> None:
    """The example of two pods: one may have more than it claims, as its claim's parameters say."""
    cluster.kubectl("delete", "resourceclaimtemplates", "--all")  # some have names of the example
    examples.start(cluster, "two-pods.yaml")
    gpus.await_ledger(cluster, {"first": 8192 * gpus.MIB, "second": 12288 * gpus.MIB})
    limits = {one["tenant"]: one["limit"] for one in gpus.gpumem(cluster, "tenants")["tenants"]}
    if (limits["pod default/first"], limits["pod default/second"]) != (8192 * gpus.MIB, 16384 * gpus.MIB):
        raise Failed(f"pods whose limits are 8 and 16 GiB: {limits}")
    gpus.remove_pods(cluster)
    cluster.kubectl("delete", "resourceclaimtemplates", "--all")


def check_unprepared(cluster: Cluster, borrowers: Borrowers) -> None:
    """A pod without a claim is refused, though it can reach the sockets."""
    made = pods.pod("stranger", ["gpumem-example-hold", "1GiB"], image=borrowers.image)
    made["spec"]["volumes"] = [{"name": "sockets", "hostPath": {"path": "/run/gpumemd"}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "sockets", "mountPath": "/run/gpumemd"}]
    cluster.apply(made)
    pods.await_phase(cluster, "stranger", "Failed", "Succeeded")
    said = cluster.kubectl("logs", "stranger")
    if pods.phase(cluster, "stranger") != "Failed" or "nothing is prepared for pod" not in said:
        raise Failed(f"a pod without a claim was told: {said}")
    cluster.kubectl("delete", "pod", "stranger")


def check_kept(cluster: Cluster) -> None:
    gpus.await_ledger(cluster, HELD)
    for name in HELD:
        if pods.phase(cluster, name) != "Running" or pods.restarts(cluster, name):
            raise Failed(f"{name} did not survive: {cluster.kubectl('describe', 'pod', name)}{cluster.kubectl('logs', name)}")


def check_restart(cluster: Cluster) -> None:
    """Another broker and another driver follow, and the pods keep what they have."""
    cluster.kubectl("-n", "gpumem", "rollout", "restart", "daemonset/gpumem")
    gpus.await_daemon_set(cluster)
    check_kept(cluster)


def check_crash(cluster: Cluster) -> None:
    """Kubelet, broker and driver die without a word, and the pods keep what they have."""
    [pod] = [one["metadata"] for one in cluster.get("pods", "-n", "gpumem", "-l", gpus.SELECTOR)["items"]]
    cluster.stop("kubelet")
    for program in ("gpumemd", "gpumem-dra"):
        [process] = node.processes_of_pod(pod["uid"], program)
        os.kill(process, signal.SIGKILL)
    cluster.resume("kubelet")
    cluster.until("broker and driver were started anew",
                  lambda: pods.restarts(cluster, pod["name"], namespace="gpumem") == 2)
    gpus.await_daemon_set(cluster)
    check_kept(cluster)


def check_amounts(cluster: Cluster, given: typing.Any, tells_health: bool = True) -> Borrowers:
    """Afterwards `second` has 12 GiB and `third` 8. tells_health: whether this kubelet says how the devices are."""
    borrowers = gpus.borrowers(cluster, given, f"metrics.port={METRICS_PORT}", one="1Gi", eight="8Gi", twelve="12Gi")
    check_slice(cluster)
    borrowers.start("first", "eight", "8GiB")
    borrowers.start("second", "twelve", "12GiB")
    borrowers.await_memory("first")
    borrowers.await_memory("second")
    if tells_health:
        check_health(cluster, "first")
    check_metrics(cluster)
    # Of the pool, 90% of 24 GiB, 1.6 GiB are left.
    borrowers.start("third", "eight", "8GiB")
    cluster.until("no node takes the third pod", lambda: pods.unschedulable(cluster, "third"))
    check_limit(cluster, borrowers)
    check_unprepared(cluster, borrowers)
    cluster.kubectl("delete", "pod", "first")
    borrowers.await_memory("third")
    return borrowers


def run(cluster: Cluster, given: typing.Any) -> None:
    check_amounts(cluster, given)
    check_restart(cluster)
    check_crash(cluster)
    gpus.remove_pods(cluster)
    check_shared(cluster)
    check_higher_limit(cluster)
