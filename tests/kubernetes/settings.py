"""The configuration files of the cluster's programs. JSON is YAML, too, so that they take it."""
from __future__ import annotations

import json
import pathlib

NODE = "node"
NODE_ADDRESS = "10.10.0.1"
POD_NETWORK = "10.10.0.0/16"
BRIDGE = "cni0"
# The API server itself listens on its service's address, so that pods reach it without kube-proxy.
SERVICE_NETWORK = "10.96.0.0/16"
API_ADDRESS = "10.96.0.1"
PAUSE = "localhost/pause:test"
# Name and groups of each who has a token.
USERS = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
}


def tokens() -> str:
    return "".join(f'token-of-{user},{name},{user},"{groups}"\n' for user, (name, groups) in USERS.items())


def kubeconfig(user: str, authority: pathlib.Path) -> str:
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": f"https://{API_ADDRESS}",
                                                   "certificate-authority": str(authority)}}],
        "users": [{"name": user, "user": {"token": f"token-of-{user}"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}]})


def kubelet() -> str:
    return json.dumps({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        # Nobody but the cluster is in its network. `kubectl logs` comes without a certificate.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        # The machine's disk is nearly full or not: that is no matter of these tests.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%",
                         "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"},
        "imageGCHighThresholdPercent": 100,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s"})


def containerd(programs: pathlib.Path) -> str:
    return f"""\
version = 3
root = '/var/lib/containerd'
state = '/run/containerd'
[grpc]
  address = '/run/containerd/containerd.sock'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '{PAUSE}'
[plugins.'io.containerd.cri.v1.runtime']
  # Of a process that may not lower its own score, as in a container.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{programs}/cni']
    conf_dir = '/etc/cni/net.d'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = '{programs}/runc'
      SystemdCgroup = false
"""


def network() -> str:
    return json.dumps({
        "cniVersion": "1.0.0", "name": "pods",
        "plugins": [{"type": "bridge", "bridge": BRIDGE, "isGateway": True,
                     "ipam": {"type": "host-local", "ranges": [[{"subnet": POD_NETWORK}]],
                              "routes": [{"dst": "0.0.0.0/0"}]}}]})
