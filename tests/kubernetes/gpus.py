"""Broker and driver by the chart on a simulated GPU of 24 GiB, pods that borrow of it, and what the node counts."""
from __future__ import annotations

import collections.abc
import json
import pathlib
import typing

import build
import pods
import processes
import product
from cluster import Cluster
from processes import Failed

DRIVER = CLASS = "gpumem.dev"
SELECTOR = "app.kubernetes.io/instance=gpumem"
SPECIFICATIONS = pathlib.Path("/var/run/cdi")
MIB = 1 << 20


def install(cluster: Cluster, given: typing.Any, offers: collections.abc.Callable[[Cluster], typing.Any] | None = None,
            *settings: str) -> None:
    """The chart with `settings` on top of those for a simulated GPU, in place of what another case has installed. Returns
    when the node `offers` its GPU. Errors: Failed; Skipped, if the image has no driver for Kubernetes."""
    product.require_driver(given.image)
    if not cluster.get("namespaces", "--field-selector", "metadata.name=gpumem")["items"]:
        cluster.import_image(given.image)
        cluster.kubectl("create", "namespace", "gpumem")
    cluster.kubectl("apply", "-n", "gpumem", "-f", "-",
                    standard_input=product.manifests(build.helm(given.cache), given.image, settings))
    try:
        await_daemon_set(cluster)
        cluster.until("the node offers its GPU", lambda: (offers or slices)(cluster))
    except Failed as failure:
        raise Failed(f"{failure}\n{cluster.kubectl('-n', 'gpumem', 'describe', 'pods')}{show(cluster)}") from None


def slices(cluster: Cluster) -> list[dict[str, typing.Any]]:
    return cluster.get("resourceslices")["items"]


def await_daemon_set(cluster: Cluster) -> None:
    cluster.kubectl("-n", "gpumem", "rollout", "status", "daemonset/gpumem", "--timeout=180s")


def show(cluster: Cluster) -> str:
    """The logs of broker and driver, for the message of a failure."""
    def said(container: str) -> str:
        try:
            return cluster.kubectl("-n", "gpumem", "logs", "-l", SELECTOR, "-c", container, "--tail=40")
        except Failed as failure:
            return str(failure)
    return "\n".join(f"--- {container}:\n{said(container)}" for container in ("client", "broker", "driver"))


def claim_of(amount: str) -> dict[str, typing.Any]:
    """The specification of a claim."""
    request = {"name": "memory", "exactly": {"deviceClassName": CLASS, "capacity": {"requests": {"memory": amount}}}}
    return {"devices": {"requests": [request]}}


def template(name: str, amount: str) -> dict[str, typing.Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
            "spec": {"spec": claim_of(amount)}}


def with_simulated_gpu(pod: dict[str, typing.Any]) -> None:
    """Additions for a simulated GPU: its memory is files of the node, and its driver knows processes by the node's ids."""
    folders = {"driver": "/run/gpumemd/driver", "memory": "/dev/shm"}
    pod["spec"]["hostPID"] = True
    pod["spec"]["volumes"] = [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": name, "mountPath": path} for name, path in folders.items()]


class Borrowers:
    """Pods that hold memory until they are deleted."""

    def __init__(self, cluster: Cluster, image: str) -> None:
        self._cluster = cluster
        self.image = image

    def made(self, name: str, claimed: str, held: str) -> dict[str, typing.Any]:
        """claimed: a claim's template; empty: none."""
        one = pods.pod(name, ["gpumem-example-hold", held], image=self.image, template=claimed, terminal=True)
        with_simulated_gpu(one)
        return one

    def start(self, name: str, claimed: str, held: str) -> None:
        self._cluster.apply(self.made(name, claimed, held))

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


def borrowers(cluster: Cluster, given: typing.Any, *settings: str, **templates: str) -> Borrowers:
    """On the chart with `settings`; `templates` of claims by name, with the amount that each claims. Errors: as install."""
    install(cluster, given, None, *settings)
    cluster.apply(*(template(name, amount) for name, amount in templates.items()))
    return Borrowers(cluster, product.image_name(given.image))


def gpumem(cluster: Cluster, *words: str) -> typing.Any:
    """The present answer of the node's broker. Errors: Failed, also while there is no broker."""
    return json.loads(cluster.kubectl("-n", "gpumem", "exec", "daemonset/gpumem", "-c", "broker", "--",
                                      "gpumem", *words, "--json"))


def charges(cluster: Cluster) -> dict[str, int]:
    """Bytes that are charged, by the name of the pod, or of the claim that several share."""
    return {one["tenant"].removeprefix("pod default/"): one["charged"] for one in gpumem(cluster, "tenants")["tenants"]
            if one["tenant"].startswith(("pod ", "claim ")) and one["charged"]}


def claimed(cluster: Cluster) -> dict[str, int]:
    """Bytes that are prepared for each pod, by its name."""
    return {claim["pods"][0]["name"]: sum(amount["guarantee"] for amount in claim["amounts"])
            for claim in gpumem(cluster, "claims")["claims"]}


def await_ledger(cluster: Cluster, held: collections.abc.Mapping[str, int],
                 seconds: float = processes.PATIENCE_SECONDS, specifications: int | None = None) -> None:
    """Waits until broker, driver and container runtime know of `held`'s pods, and of no others: each is charged all that
    it claims, in bytes. specifications: files for the runtime; None: one for each pod. Errors: Failed, with what they say."""
    files = len(held) if specifications is None else specifications
    def seen() -> tuple[dict[str, int], dict[str, int], int]:
        return claimed(cluster), charges(cluster), len([file for file in SPECIFICATIONS.iterdir() if "gpumem" in file.name])
    def is_as_held() -> bool:
        try:
            return seen() == (held, held, files)
        except Failed:  # it is just being replaced
            return False
    try:
        cluster.until("the ledger is what is claimed", is_as_held, seconds)
    except Failed as failure:
        raise Failed(f"{failure}: {dict(held)}; claims, charges, device specifications: {seen()}\n{show(cluster)}") from None


def remove_pods(cluster: Cluster, seconds: float = processes.PATIENCE_SECONDS) -> None:
    """All of the cases' namespace; afterwards nothing is claimed, charged or left over."""
    cluster.kubectl("delete", "pods", "--all", "--wait=false")
    cluster.until("all pods are gone", lambda: not cluster.get("pods")["items"], seconds)
    await_ledger(cluster, {})
