"""Broker and driver by the chart, on a simulated GPU of 24 GiB: two pods get what they claim of it, a third waits."""
from __future__ import annotations

import typing

import build
import pods
import product
from cluster import Cluster
from processes import Failed

CLASS = "gpumem.dev"
SELECTOR = "app.kubernetes.io/instance=gpumem"


def template(name: str, amount: str) -> dict[str, typing.Any]:
    request = {"name": "memory", "exactly": {"deviceClassName": CLASS, "capacity": {"requests": {"memory": amount}}}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
            "spec": {"spec": {"devices": {"requests": [request]}}}}


def with_simulated_gpu(pod: dict[str, typing.Any]) -> None:
    """What a real GPU does not need: its memory is files of the node, and its driver knows processes by the node's ids."""
    folders = {"driver": "/run/gpumemd/driver", "memory": "/dev/shm"}
    pod["spec"]["hostPID"] = True
    pod["spec"]["volumes"] = [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": name, "mountPath": path} for name, path in folders.items()]


class Borrowers:
    """Pods that hold memory until they are deleted."""

    def __init__(self, cluster: Cluster, image: str) -> None:
        self._cluster = cluster
        self.image = image

    def start(self, name: str, claimed: str, held: str) -> None:
        made = pods.pod(name, ["gpumem-example-hold", held], image=self.image, template=claimed, terminal=True)
        with_simulated_gpu(made)
        self._cluster.apply(made)

    def await_memory(self, name: str) -> None:
        def said() -> bool:
            if pods.phase(self._cluster, name) in ("Failed", "Succeeded"):
                raise Failed(f"{name} has ended: {self._cluster.kubectl('logs', name)}")
            return (pods.phase(self._cluster, name) == "Running"
                    and f"tenant pod default/{name};" in self._cluster.kubectl("logs", name))
        try:
            self._cluster.until(f"{name} has its memory", said)
        except Failed as failure:
            raise Failed(f"{failure}\n{self._cluster.kubectl('describe', 'pod', name)}{show(self._cluster)}") from None


def show(cluster: Cluster) -> str:
    """What broker and driver say, for a failure's words."""
    def said(container: str) -> str:
        try:
            return cluster.kubectl("-n", "gpumem", "logs", "-l", SELECTOR, "-c", container, "--tail=40")
        except Failed as failure:
            return str(failure)
    return "\n".join(f"--- {container}:\n{said(container)}" for container in ("client", "broker", "driver"))


def install(cluster: Cluster, given: typing.Any) -> None:
    cluster.import_image(given.image)
    cluster.kubectl("create", "namespace", "gpumem")
    cluster.kubectl("apply", "-n", "gpumem", "-f", "-",
                    standard_input=product.manifests(build.helm(given.cache), given.image))
    try:
        cluster.kubectl("-n", "gpumem", "rollout", "status", "daemonset/gpumem", "--timeout=180s")
        cluster.until("the node offers its GPU", lambda: cluster.get("resourceslices")["items"])
    except Failed as failure:
        raise Failed(f"{failure}\n{cluster.kubectl('-n', 'gpumem', 'describe', 'pods')}{show(cluster)}") from None


def check_slice(cluster: Cluster) -> None:
    [slice_] = cluster.get("resourceslices")["items"]
    [device] = slice_["spec"]["devices"]
    if not device.get("allowMultipleAllocations") or "memory" not in device["capacity"]:
        raise Failed(f"the node offers no amounts of memory: {device}")


def check_limit(cluster: Cluster, borrowers: Borrowers) -> None:
    """A pod gets no more than it has claimed, whatever it asks for."""
    borrowers.start("greedy", "one", "2GiB")
    pods.await_phase(cluster, "greedy", "Failed", "Succeeded")
    said = cluster.kubectl("logs", "greedy")
    if "tenant" in said and "press Enter" in said or "limit" not in said:
        raise Failed(f"a pod that claims 1 GiB and asks for 2 was told: {said}")
    cluster.kubectl("delete", "pod", "greedy")


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


def check_restart(cluster: Cluster) -> None:
    """Another broker and another driver follow, and the pods keep what they have."""
    cluster.kubectl("-n", "gpumem", "rollout", "restart", "daemonset/gpumem")
    cluster.kubectl("-n", "gpumem", "rollout", "status", "daemonset/gpumem", "--timeout=180s")
    for name, held in (("second", "12GiB"), ("third", "8GiB")):
        def is_charged() -> bool:
            listed = cluster.kubectl("-n", "gpumem", "exec", "daemonset/gpumem", "-c", "broker", "--", "gpumem", "ps")
            return any(f"default/{name}" in line and held in line for line in listed.splitlines())
        cluster.until(f"the next broker knows what {name} holds", is_charged)
        if pods.phase(cluster, name) != "Running":
            raise Failed(f"{name} did not survive a restart of the broker: {cluster.kubectl('logs', name)}")


def run(cluster: Cluster, given: typing.Any) -> None:
    product.require_driver(given.image)
    install(cluster, given)
    check_slice(cluster)
    borrowers = Borrowers(cluster, product.image_name(given.image))
    cluster.apply(template("one", "1Gi"), template("eight", "8Gi"), template("twelve", "12Gi"))
    borrowers.start("first", "eight", "8GiB")
    borrowers.start("second", "twelve", "12GiB")
    borrowers.await_memory("first")
    borrowers.await_memory("second")
    # Of the pool, 90% of 24 GiB, 1.6 GiB are left.
    borrowers.start("third", "eight", "8GiB")
    cluster.until("no node takes the third pod", lambda: pods.unschedulable(cluster, "third"))
    check_limit(cluster, borrowers)
    check_unprepared(cluster, borrowers)
    cluster.kubectl("delete", "pod", "first")
    borrowers.await_memory("third")
    check_restart(cluster)
