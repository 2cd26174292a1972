"""The product that is tested on the cluster: gpumem's image, made of a build, and its chart."""
from __future__ import annotations

import json
import pathlib
import subprocess
import tarfile

import images
import image
from processes import Failed, Skipped

CHART = images.ROOT / "deploy/kubernetes/chart"
RENDERED = images.ROOT / "deploy/kubernetes/gpumem.yaml"
EXAMPLES = images.ROOT / "deploy/kubernetes/examples"
# A node without a GPU: the simulated one is lent, pods get no device files, and load no driver in front of another.
SIMULATED = ("image.pullPolicy=Never", "simulate=1x24GiB", "runtimeClassName=", "nodeSelector=null", "driver.inject=none",
             "driver.deviceKind=none", "broker.logFormat=text", "driver.logFormat=text")


def make_packages(build: pathlib.Path, work: pathlib.Path) -> pathlib.Path:
    """The folder of `build`'s packages. Errors: Failed."""
    made = subprocess.run(["cpack", "--config", build / "CPackConfig.cmake", "-B", work / "packages"],
                          capture_output=True, text=True)
    if made.returncode:
        raise Failed(f"no packages of {build}: {(made.stdout + made.stderr)[-2000:]}")
    return work / "packages"


def image_name(archive: pathlib.Path) -> str:
    with tarfile.open(archive) as layout:
        index = json.load(layout.extractfile("index.json") or b"")
    return index["manifests"][0]["annotations"]["io.containerd.image.name"]


def require_driver(archive: pathlib.Path) -> None:
    """Errors: Skipped, if the image has no driver for Kubernetes."""
    with tarfile.open(archive) as layout:
        index = json.load(layout.extractfile("index.json") or b"")
        manifest = json.load(layout.extractfile(_blob(index["manifests"][0])) or b"")
        with tarfile.open(fileobj=layout.extractfile(_blob(manifest["layers"][0]))) as layer:
            if "usr/bin/gpumem-dra" not in layer.getnames():
                raise Skipped("the image has no gpumem-dra")


def _blob(described: dict) -> str:
    return "blobs/" + described["digest"].replace(":", "/")


def manifests(helm: pathlib.Path, archive: pathlib.Path, settings: tuple[str, ...] = ()) -> str:
    """The chart's objects for a node with a simulated GPU of 24 GiB. Errors: Failed, with Helm's words."""
    repository, tag = image_name(archive).rsplit(":", 1)
    return render(helm, (*SIMULATED, f"image.repository={repository}", f"image.tag={tag}", *settings))


def render(helm: pathlib.Path, settings: tuple[str, ...]) -> str:
    options = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run([helm, "template", "gpumem", CHART, "--namespace", "gpumem", "--kube-version", "1.36", *options],
                          capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"helm template: {done.stderr.strip()}")
    return done.stdout
