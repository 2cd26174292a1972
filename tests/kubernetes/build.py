"""The programs of a test cluster, built or unpacked once into the cache: Kubernetes, etcd, containerd and Helm as Go
modules, runc and the network plugins from Debian.

Everything below `cache`: `go` is Go's own (modules, compiled packages), `programs-KEY` the programs of one state of
programs/ and of the Debian packages, `older_kubelet-KEY` and `kubelet_without_dra-KEY` those of the folders of these names.
`KEY` changes with them, so that nothing old is ever used.
"""
from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DEBIAN = {"runc": "usr/sbin/runc", "containernetworking-plugins": "usr/lib/cni"}
KUBERNETES = "k8s.io/kubernetes"
CONTAINERD = "github.com/containerd/containerd/v2"
# Snapshotters that nobody here uses, and that take long to compile.
TAGS = "no_btrfs,no_devmapper,no_zfs,no_aufs"
ROLES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")


@dataclasses.dataclass(frozen=True)
class Module:
    """A folder with main.go, and with a go.mod that says which versions of which modules it is built of."""
    name: str

    @property
    def folder(self) -> pathlib.Path:
        return HERE / self.name

    def version_of(self, module: str) -> str:
        found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v[0-9.]+)", (self.folder / "go.mod").read_text(), re.MULTILINE)
        assert found, f"{self.name} does not require {module}"
        return found[1]

    def key(self) -> str:
        digest = hashlib.sha256(repr((DEBIAN, TAGS)).encode())
        for name in ("go.mod", "go.sum", "main.go"):
            digest.update((self.folder / name).read_bytes())
        return digest.hexdigest()[:12]


CLUSTER = Module("programs")
OLDEST_KUBELET = Module("older_kubelet")
KUBELET_WITHOUT_DRA = Module("kubelet_without_dra")


class Unavailable(Exception):
    """Something that the cluster needs cannot be had here; the words say what."""


def find_go() -> str:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if not go:
        raise Unavailable("there is no Go (https://go.dev/dl; programs/go.mod says which version)")
    return go


def go_build(cache: pathlib.Path, module: Module, output: pathlib.Path, package: str, linked: str = "") -> None:
    # One package at a time and after everything else: it takes minutes, and others work here.
    own = {"GOPATH": str(cache / "go"), "GOCACHE": str(cache / "go/build"), "CGO_ENABLED": "0",
           "GOFLAGS": os.environ.get("GOFLAGS", "-p=1") + " -mod=readonly -trimpath -buildvcs=false"}
    command = ["nice", "-n", "19", find_go(), "build", "-o", output, "-tags", TAGS, "-ldflags", f"-s -w {linked}",
               package]
    done = subprocess.run(command, cwd=module.folder, env=os.environ | own, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"{package} does not build: {(done.stdout + done.stderr).strip()[-2000:]}")


def build_kubernetes(cache: pathlib.Path, module: Module, program: pathlib.Path) -> None:
    version = module.version_of(KUBERNETES)
    # Without it the kubelet says that it is v0.0.0, and the control plane refuses it as too old.
    names = {"gitVersion": version, "gitMajor": "1", "gitMinor": version.split(".")[1], "gitTreeState": "clean"}
    go_build(cache, module, program, ".",
             " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in names.items()))


def build_cluster(cache: pathlib.Path, into: pathlib.Path) -> None:
    build_kubernetes(cache, CLUSTER, into / "cluster")
    for role in ROLES:
        (into / role).symlink_to("cluster")
    linked = f"-X {CONTAINERD}/version.Version={CLUSTER.version_of(CONTAINERD)}"
    for name in ("containerd", "containerd-shim-runc-v2", "ctr"):
        go_build(cache, CLUSTER, into / name, f"{CONTAINERD}/cmd/{name}", linked)


def unpack_debian(into: pathlib.Path) -> None:
    """The programs of DEBIAN's packages. They are not installed: that would start services."""
    with tempfile.TemporaryDirectory() as work:
        for package, part in DEBIAN.items():
            done = subprocess.run(["apt-get", "download", "-q", package], cwd=work, capture_output=True, text=True)
            if done.returncode:
                raise Unavailable(f"Debian's {package} cannot be had: {done.stderr.strip()[-300:]}")
            [file] = pathlib.Path(work).glob(f"{package}_*.deb")
            subprocess.run(["dpkg-deb", "-x", file, f"{work}/root"], check=True)
            found = pathlib.Path(work, "root", part)
            if found.is_dir():
                shutil.copytree(found, into / "cni")
            else:
                shutil.copy2(found, into)


def finished(cache: pathlib.Path, module: Module, name: str, make: list) -> pathlib.Path:
    """The folder `name`-KEY of the cache, made of `module` by `make` unless it is there: all of it, or nothing."""
    folder = cache / f"{name}-{module.key()}"
    if folder.is_dir():
        return folder
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for step in make:
            step(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def cluster_programs(cache: pathlib.Path) -> pathlib.Path:
    """The folder of the programs of a node and of its control plane. Takes minutes the first time.
    Errors: Unavailable (no Go of that version, no module proxy, no Debian archive)."""
    return finished(cache, CLUSTER, "programs", [unpack_debian, lambda into: build_cluster(cache, into)])


def kubelet(cache: pathlib.Path, module: Module) -> pathlib.Path:
    """The kubelet of an older version. Takes minutes the first time. Errors: Unavailable."""
    return finished(cache, module, module.name, [lambda into: build_kubernetes(cache, module, into / "kubelet")]) / "kubelet"


def helm(cache: pathlib.Path) -> pathlib.Path:
    """The program helm. Errors: Unavailable."""
    return finished(cache, CLUSTER, "helm",
                    [lambda into: go_build(cache, CLUSTER, into / "helm", "helm.sh/helm/v4/cmd/helm")]) / "helm"
