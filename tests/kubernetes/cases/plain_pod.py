"""A pod runs to its end and its log can be read: the cluster itself is good."""
from __future__ import annotations

import pods
from cluster import Cluster
from processes import Failed

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# By the cluster's network, and as a driver does it: with the pod's own token, at the address of the service.
ASKS_API = (f'echo "said by $(hostname)"; test -s {ACCOUNT}/token && test -s {ACCOUNT}/ca.crt; '
            'nc -w 5 "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT" </dev/null && echo reached; '
            "cat /proc/self/cgroup")


def run(cluster: Cluster, _: object) -> None:
    cluster.apply(pods.pod("plain", ["sh", "-euc", ASKS_API]))
    pods.await_phase(cluster, "plain", "Succeeded", "Failed")
    said = cluster.kubectl("logs", "plain")
    for expected in ("said by plain", "reached", "/kubepods/"):
        if expected not in said:
            raise Failed(f"the pod did not say '{expected}', but: {said}")
    cluster.kubectl("delete", "pod", "plain", "--wait=true")
