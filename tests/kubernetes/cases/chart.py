"""The chart: Helm finds nothing wrong and refuses wrong values; the API server takes all of it, and keeps drivers to their
nodes."""
from __future__ import annotations

import json
import subprocess
import typing

import build
import product
import settings
from cluster import Cluster
from processes import Failed

WRONG = ("broker.escalation=never", "simulate=lots", "driver.inject=maybe", "brokr.reserve=90%", "broker.socketGroup=0",
         "deviceClass.name=Not A Name", "metrics.port=70000", "metrics.discovery=guess", "metrics.address=here")
ACCOUNT = "system:serviceaccount:gpumem:gpumem"
NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"


def check_lint(helm: object) -> None:
    done = subprocess.run([helm, "lint", "--strict", "--kube-version", "1.36", product.CHART], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"helm lint: {done.stdout}{done.stderr}")


def check_wrong_values(helm: object) -> None:
    for setting in WRONG:
        try:
            product.render(helm, (setting,))
        except Failed:
            continue
        raise Failed(f"the chart takes {setting}")


def check_rendered(helm: object) -> None:
    made = product.RENDERED.read_text()
    if product.render(helm, ()) not in made:
        raise Failed(f"{product.RENDERED.name} is not what the chart makes: run deploy/kubernetes/render.sh {helm}")


def check_discovery(helm: object) -> None:
    """Prometheus is told of a port that there is, in the way that was chosen."""
    port = "metrics.port=9400"
    for settings_, told in (((), set()), ((port,), {"annotations"}), ((port, "metrics.discovery=podMonitor"), {"PodMonitor"}),
                            ((port, "metrics.discovery=none"), set()), (("metrics.discovery=podMonitor",), set())):
        made = product.render(helm, settings_)
        words = {"annotations": 'prometheus.io/port: "9400"', "PodMonitor": "kind: PodMonitor"}
        if {way for way, word in words.items() if word in made} != told:
            raise Failed(f"with {settings_} Prometheus is told otherwise than by {told or 'nothing'}")


def slice_of(node: str) -> str:
    return json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{node}-tried"},
                       "spec": {"driver": "gpumem.dev", "nodeName": node,
                                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})


def check_policy(cluster: Cluster) -> None:
    """As the driver of the node, slices of the node can be made, and no others."""
    as_driver = ("--as", ACCOUNT, "--as-user-extra", f"{NODE_OF_TOKEN}={settings.NODE}")
    create = ("create", "--dry-run=server", "-f", "-")
    # The policy is in force a moment after it was made.
    def is_refused() -> bool:
        try:
            cluster.kubectl(*create, *as_driver, standard_input=slice_of("another"))
        except Failed as failure:
            if "may not change slices of node another" not in str(failure):
                raise
            return True
        return False
    cluster.until("a driver is kept to its node", is_refused)
    cluster.kubectl(*create, *as_driver, standard_input=slice_of(settings.NODE))


def run(cluster: Cluster, given: typing.Any) -> None:
    helm = build.helm(given.cache)
    check_lint(helm)
    check_wrong_values(helm)
    check_rendered(helm)
    check_discovery(helm)
    # Taken as they are; on this node no pod of theirs runs: it has not the label of a GPU.
    cluster.kubectl("apply", "-f", product.RENDERED)
    check_policy(cluster)
    for example in sorted(product.EXAMPLES.glob("*.yaml")):
        cluster.kubectl("create", "--dry-run=server", "-f", example)
    cluster.kubectl("delete", "-f", product.RENDERED)
