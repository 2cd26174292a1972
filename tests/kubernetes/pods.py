"""Pods as the cases write them, and how they end."""
from __future__ import annotations

import typing

import images
from cluster import Cluster
from processes import Failed


def pod(name: str, command: list[str], *, image: str = images.BUSYBOX, template: str = "",
        terminal: bool = False) -> dict[str, typing.Any]:
    """A pod of one container, which gets what is claimed by `template`, if one is named. With a terminal its input does not
    end, and its lines are in the log at once."""
    container: dict[str, typing.Any] = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": command,
                                        "stdin": terminal, "tty": terminal}
    spec: dict[str, typing.Any] = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    if template:
        container["resources"] = {"claims": [{"name": "gpu"}]}
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def phase(cluster: Cluster, name: str) -> str:
    return cluster.get("pod", name)["status"].get("phase", "")


def restarts(cluster: Cluster, name: str, namespace: str = "default") -> int:
    """How often containers of the pod were started anew."""
    status = cluster.get("pod", name, "-n", namespace)["status"]
    return sum(one["restartCount"] for one in status.get("containerStatuses", []))


def await_phase(cluster: Cluster, name: str, *wanted: str) -> None:
    """Errors: Failed, with what Kubernetes says of the pod."""
    try:
        cluster.until(f"pod {name} is {' or '.join(wanted)}", lambda: phase(cluster, name) in wanted)
    except Failed as failure:
        raise Failed(f"{failure}\n{cluster.kubectl('describe', 'pod', name)}") from None


def unschedulable(cluster: Cluster, name: str) -> str:
    """Why no node takes the pod; empty if one did, or none was looked for yet."""
    for one in cluster.get("pod", name)["status"].get("conditions", []):
        if one["type"] == "PodScheduled" and one["status"] == "False" and one["reason"] == "Unschedulable":
            return one["message"]
    return ""
