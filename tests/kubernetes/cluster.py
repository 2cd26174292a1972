"""A control plane and one node, of real programs. It runs as process 1 of the namespaces of namespaces.py."""
from __future__ import annotations

import json
import pathlib
import subprocess
import typing

import node
import settings
from namespaces import run
from processes import PATIENCE_SECONDS, Failed, Process, until


class Cluster:
    """The programs in `programs`, their files in `work`. `kubectl` speaks as an administrator."""

    def __init__(self, programs: pathlib.Path, work: pathlib.Path) -> None:
        self._programs = programs
        self._work = work
        self._files = work / "files"
        self.logs = work / "logs"
        self._authority = self._files / "pki/apiserver.crt"
        self.processes: list[Process] = []
        self._options: dict[str, tuple[object, ...]] = {}
        self._kubelet = programs / "kubelet"
        self._files.mkdir()
        self.logs.mkdir()

    def environment(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self._files / "admin.kubeconfig"), "CONTAINERD_NAMESPACE": "k8s.io",
                "PATH": f"{self._programs}:/usr/sbin:/usr/bin:/sbin:/bin"}

    def start(self, images: list[pathlib.Path]) -> None:
        """Returns when the node is ready for pods. Errors: Failed."""
        self._write_files()
        self._make_network()
        self._start_control_plane()
        self._start_node(images)

    def kubectl(self, *words: object, standard_input: str | None = None) -> str:
        """What kubectl prints. Errors: Failed, with what it says."""
        done = subprocess.run([self._programs / "kubectl", *map(str, words)], input=standard_input, text=True,
                              capture_output=True, env=self.environment())
        if done.returncode:
            raise Failed(f"kubectl {' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *words: object) -> dict[str, typing.Any]:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects: dict[str, typing.Any]) -> None:
        self.kubectl("apply", "-f", "-", standard_input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def until(self, what: str, condition: typing.Callable[[], typing.Any], seconds: float = PATIENCE_SECONDS) -> typing.Any:
        return until(what, condition, self.processes, seconds)

    def stop(self, name: str) -> None:
        """Ends a program of the cluster, as by a crash."""
        [process] = [one for one in self.processes if one.name == name]
        self.processes.remove(process)
        process.kill()

    def resume(self, name: str) -> None:
        """Starts again what was stopped, and returns when it serves."""
        self._start(name, *self._options[name])
        if name == "kube-apiserver":
            self.until("the API server is ready", lambda: self._answers("get", "--raw", "/readyz"))

    def boot_node(self) -> None:
        """The node without the control plane: every process of its pods ends at once, and what a machine forgets is gone."""
        self._halt_node()
        self._start_again()

    def install_node(self, kubelet: pathlib.Path) -> None:
        """As boot_node, on an empty disk but for the images, and with another kubelet."""
        self._halt_node()
        node.erase()
        self._kubelet = kubelet
        self._start_again()

    def upgrade_node(self) -> None:
        """The kubelet of the control plane's version takes up what another one leaves, pods that run among it."""
        self.stop("kubelet")
        self._kubelet = self._programs / "kubelet"
        self.resume("kubelet")

    def _halt_node(self) -> None:
        self.stop("kubelet")
        self.stop("containerd")
        node.end_containers(self._programs)
        node.forget()

    def _start_again(self) -> None:
        self.resume("containerd")
        self.until("containerd answers", self._is_containerd_there)
        self.resume("kubelet")

    def await_kubelet(self, version: str) -> None:
        """Waits until the node is ready with this version of its kubelet."""
        def said() -> list[str]:
            return [one["status"]["nodeInfo"]["kubeletVersion"] for one in self.get("nodes")["items"]]
        self.until(f"the node's kubelet is {version}", lambda: said() == [version] and self._is_node_ready())

    def import_image(self, archive: pathlib.Path) -> None:
        run(self._programs / "ctr", "--address", "/run/containerd/containerd.sock", "-n", "k8s.io", "image", "import",
            "--local", archive)

    def _write_files(self) -> None:
        for user in settings.USERS:
            (self._files / f"{user}.kubeconfig").write_text(settings.kubeconfig(user, self._authority))
        (self._files / "tokens.csv").write_text(settings.tokens())
        (self._files / "kubelet.yaml").write_text(settings.kubelet())
        (self._files / "containerd.toml").write_text(settings.containerd(self._programs))
        for folder in ("/etc/cni/net.d", "/run/containerd", "/var/run/cdi", "/etc/cdi"):
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        pathlib.Path("/etc/cni/net.d/pods.conflist").write_text(settings.network())
        run("openssl", "genrsa", "-out", self._files / "accounts.key", "2048")

    @staticmethod
    def _make_network() -> None:
        run("ip", "link", "add", settings.BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{settings.NODE_ADDRESS}/16", "dev", settings.BRIDGE)
        run("ip", "address", "add", f"{settings.API_ADDRESS}/32", "dev", "lo")
        run("ip", "link", "set", settings.BRIDGE, "up")
        pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _start(self, name: str, *options: object) -> None:
        self._options[name] = options
        program = self._kubelet if name == "kubelet" else self._programs / name
        process = Process([program, *options], self.logs / f"{name}.log", self.environment())
        self.processes.append(process)

    def _start_control_plane(self) -> None:
        key = self._files / "accounts.key"
        # The cluster's state ends with it, so nothing has to reach the disk.
        self._start("etcd", "--data-dir", self._work / "etcd", "--unsafe-no-fsync",
                    "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
                    "--listen-peer-urls", "http://127.0.0.1:2380")
        self._start("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--cert-dir={self._files / 'pki'}",
                    "--secure-port=443", f"--advertise-address={settings.NODE_ADDRESS}",
                    f"--service-cluster-ip-range={settings.SERVICE_NETWORK}",
                    f"--token-auth-file={self._files / 'tokens.csv'}", "--authorization-mode=Node,RBAC",
                    "--enable-admission-plugins=NodeRestriction", "--kubelet-preferred-address-types=InternalIP",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}")
        self.until("the API server is ready", lambda: self._answers("get", "--raw", "/readyz"))
        self._start("kube-controller-manager", f"--kubeconfig={self._files / 'kube-controller-manager.kubeconfig'}",
                    "--leader-elect=false", "--use-service-account-credentials=true",
                    f"--service-account-private-key-file={key}", f"--root-ca-file={self._authority}")
        self._start("kube-scheduler", f"--kubeconfig={self._files / 'kube-scheduler.kubeconfig'}", "--leader-elect=false")

    def _start_node(self, images: list[pathlib.Path]) -> None:
        self._start("containerd", "--config", self._files / "containerd.toml")
        self.until("containerd answers", self._is_containerd_there)
        for image in images:
            self.import_image(image)
        self._start("kubelet", f"--config={self._files / 'kubelet.yaml'}",
                    f"--kubeconfig={self._files / 'kubelet.kubeconfig'}", f"--hostname-override={settings.NODE}",
                    f"--node-ip={settings.NODE_ADDRESS}")
        self.until("the node is ready", self._is_node_ready)
        self.until("pods may be made", lambda: self._answers("get", "serviceaccount", "default"))

    def _answers(self, *words: str) -> bool:
        try:
            return bool(self.kubectl(*words))
        except Failed:
            return False

    def _is_containerd_there(self) -> bool:
        asked = [self._programs / "ctr", "--address", "/run/containerd/containerd.sock", "version"]
        return subprocess.run(asked, capture_output=True).returncode == 0

    def _is_node_ready(self) -> bool:
        nodes = self.get("nodes")["items"]
        return any(one["type"] == "Ready" and one["status"] == "True" for node in nodes for one in node["status"]["conditions"])
