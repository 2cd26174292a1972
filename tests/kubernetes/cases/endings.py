"""Pods that end in every way, many at once, claims that vanish or cannot be: the ledger is what is claimed, nothing is left."""
from __future__ import annotations

import json
import re
import typing

import gpus
import pods
import settings
from cluster import Cluster
from gpus import Borrowers
from processes import Failed

MANY = 50
QUARTER = 256 * gpus.MIB
# Fifty pods are made one after the other: what that takes on two cores is the container runtime's.
MANY_SECONDS = 1200
# Each with the words that the pod's event has.
WRONG_PARAMETERS = {
    "low": ({"kind": "SliceParameters", "limit": "1Mi"}, ("limit", "guarantee")),
    "no-amount": ({"kind": "SliceParameters", "limit": "plenty"}, ("limit", "plenty")),
    "unknown-field": ({"kind": "SliceParameters", "burst": "1Gi"}, ("unknown field", "burst")),
    "another-kind": ({"kind": "GpuConfig"}, ("kind has to be SliceParameters",)),
}
ANOTHER_DRIVER = "another.example"
ANOTHER_CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "another"},
                 "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{ANOTHER_DRIVER}'"}}]}}
ANOTHER_SLICE = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "another"},
                 "spec": {"driver": ANOTHER_DRIVER, "nodeName": settings.NODE, "devices": [{"name": "device"}],
                          "pool": {"name": settings.NODE, "generation": 1, "resourceSliceCount": 1}}}


def check_many(cluster: Cluster, borrowers: Borrowers) -> None:
    """All at once, and gone at once."""
    held = {f"many-{number}": QUARTER for number in range(MANY)}
    cluster.apply(*(borrowers.made(name, "quarter", "256MiB") for name in held))
    gpus.await_ledger(cluster, held, seconds=MANY_SECONDS)
    gpus.remove_pods(cluster, seconds=MANY_SECONDS)


def start_one(cluster: Cluster, borrowers: Borrowers, name: str) -> None:
    borrowers.start(name, "quarter", "256MiB")
    borrowers.await_memory(name)
    gpus.await_ledger(cluster, {name: QUARTER})


# Another process holds the device's memory. Asked to, the first one takes as much of the machine's as it can get. Kubernetes
# makes one dollar of two.
HUNGRY = """
trap 'asked=yes' USR1
gpumem-example-hold 256MiB < /dev/tty &
echo "process $$$$"
until [ "$asked" ]; do wait; done
memory=x; while :; do memory=$memory$memory; done
"""


def check_killed_for_memory(cluster: Cluster, borrowers: Borrowers) -> None:
    """By the kernel, as the machine's memory that its container may have is used up."""
    made = borrowers.made("hungry", "quarter", "")
    [container] = made["spec"]["containers"]
    container["command"] = ["sh", "-c", HUNGRY]
    container["resources"]["limits"] = {"memory": "128Mi"}
    cluster.apply(made)
    gpus.await_ledger(cluster, {"hungry": QUARTER})
    pods.await_phase(cluster, "hungry", "Running", "Failed")  # the API server hears of it later than the broker
    [process] = cluster.until("it names its process", lambda: re.findall(r"process (\d+)", cluster.kubectl("logs", "hungry")))
    cluster.kubectl("exec", "hungry", "--", "sh", "-c", f"kill -USR1 {process}")
    pods.await_phase(cluster, "hungry", "Failed", "Succeeded")
    [status] = cluster.get("pod", "hungry")["status"]["containerStatuses"]
    if (reason := status["state"]["terminated"]["reason"]) != "OOMKilled":
        raise Failed(f"the pod was to be killed for its memory, and ended so: {reason}")
    gpus.await_ledger(cluster, {})  # though the pod is still listed


def check_evicted(cluster: Cluster, borrowers: Borrowers) -> None:
    start_one(cluster, borrowers, "evicted")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted", "namespace": "default"}}
    cluster.kubectl("create", "--raw", "/api/v1/namespaces/default/pods/evicted/eviction", "-f", "-",
                    standard_input=json.dumps(eviction))
    gpus.await_ledger(cluster, {})


def check_evicted_by_node(cluster: Cluster, borrowers: Borrowers) -> None:
    """The kubelet ends a pod whose volume outgrows its limit. The pod stays listed."""
    made = borrowers.made("filling", "quarter", "256MiB")
    made["spec"]["volumes"].append({"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}})
    made["spec"]["containers"][0]["volumeMounts"].append({"name": "scratch", "mountPath": "/scratch"})
    cluster.apply(made)
    borrowers.await_memory("filling")
    gpus.await_ledger(cluster, {"filling": QUARTER})
    cluster.kubectl("exec", "filling", "--", "cp", "-r", "/usr/bin", "/scratch")
    pods.await_phase(cluster, "filling", "Failed", "Succeeded")
    if (reason := cluster.get("pod", "filling")["status"].get("reason")) != "Evicted":
        raise Failed(f"the kubelet was to evict the pod, and it ended so: {reason}")
    gpus.await_ledger(cluster, {})


def check_forced(cluster: Cluster, borrowers: Borrowers) -> None:
    """The API server forgets the pod before the node has ended it."""
    start_one(cluster, borrowers, "forced")
    cluster.kubectl("delete", "pod", "forced", "--force", "--grace-period=0")
    gpus.await_ledger(cluster, {})


def check_vanished(cluster: Cluster, borrowers: Borrowers) -> None:
    """A claim is taken out of the API under a pod that runs: it keeps its memory, and leaves nothing."""
    start_one(cluster, borrowers, "bereft")
    [claim] = [one["resourceClaimName"] for one in cluster.get("pod", "bereft")["status"]["resourceClaimStatuses"]]
    cluster.kubectl("delete", "resourceclaim", claim, "--wait=false")
    cluster.kubectl("patch", "resourceclaim", claim, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    cluster.until("the claim is gone", lambda: not cluster.get("resourceclaims")["items"])
    gpus.await_ledger(cluster, {"bereft": QUARTER})
    cluster.kubectl("delete", "pod", "bereft")
    gpus.await_ledger(cluster, {})


def events_of(cluster: Cluster, pod: str, reason: str) -> str:
    found = cluster.get("events", "--field-selector", f"involvedObject.name={pod},reason={reason}")["items"]
    return "\n".join(one["message"] for one in found)


def check_unserved(cluster: Cluster, pod: str) -> None:
    """No node takes the pod, and an event says why."""
    cluster.until(f"no node takes the pod {pod}", lambda: pods.unschedulable(cluster, pod))
    cluster.until("an event says why",
                  lambda: "cannot allocate all claims" in events_of(cluster, pod, "FailedScheduling"))


def await_event(cluster: Cluster, pod: str, *words: str) -> None:
    """Waits for one that says, in these words, why the node does not start the pod."""
    def said() -> str:
        return events_of(cluster, pod, "FailedPrepareDynamicResources")
    try:
        cluster.until("an event says why the pod does not start", lambda: all(word in said() for word in words))
    except Failed as failure:
        raise Failed(f"{failure}: {words}, but: {said()}") from None


def check_too_much(cluster: Cluster, borrowers: Borrowers) -> None:
    """More than any device has."""
    cluster.apply(gpus.template("huge", "100Gi"))
    borrowers.start("huge", "huge", "100GiB")
    check_unserved(cluster, "huge")
    gpus.remove_pods(cluster)


def check_wrong_parameters(cluster: Cluster, borrowers: Borrowers) -> None:
    for name, (parameters, _) in WRONG_PARAMETERS.items():
        wrong = gpus.template(name, "256Mi")
        opaque = {"driver": gpus.DRIVER, "parameters": {"apiVersion": "gpumem.dev/v1alpha1", **parameters}}
        wrong["spec"]["spec"]["devices"]["config"] = [{"opaque": opaque}]
        cluster.apply(wrong)
        borrowers.start(name, name, "256MiB")
    for name, (_, words) in WRONG_PARAMETERS.items():
        await_event(cluster, name, *words)
    gpus.await_ledger(cluster, {})
    gpus.remove_pods(cluster)


def check_another_driver(cluster: Cluster, borrowers: Borrowers) -> None:
    """A claim of devices that another driver has: first nobody offers one, then its driver is not on the node."""
    both = gpus.template("both", "256Mi")
    both["spec"]["spec"]["devices"]["requests"].append(
        {"name": "another", "exactly": {"deviceClassName": ANOTHER_CLASS["metadata"]["name"]}})
    cluster.apply(ANOTHER_CLASS, both)
    borrowers.start("both", "both", "256MiB")
    check_unserved(cluster, "both")
    cluster.apply(ANOTHER_SLICE)
    await_event(cluster, "both", ANOTHER_DRIVER)
    gpus.remove_pods(cluster)
    cluster.kubectl("delete", "resourceslice", ANOTHER_SLICE["metadata"]["name"])


def check_endings(cluster: Cluster, given: typing.Any) -> Borrowers:
    borrowers = gpus.borrowers(cluster, given, quarter="256Mi")
    check_killed_for_memory(cluster, borrowers)
    check_evicted(cluster, borrowers)
    check_evicted_by_node(cluster, borrowers)
    check_forced(cluster, borrowers)
    check_vanished(cluster, borrowers)
    check_too_much(cluster, borrowers)
    check_wrong_parameters(cluster, borrowers)
    check_another_driver(cluster, borrowers)
    return borrowers


def run(cluster: Cluster, given: typing.Any) -> None:
    check_many(cluster, check_endings(cluster, given))
