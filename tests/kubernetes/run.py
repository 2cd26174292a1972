#!/usr/bin/env python3
"""run.py [--build BUILD | --image FILE] [--shell] [CASE...]: a Kubernetes cluster of its own, and what is tried on it.

Without CASE, all of cases/. Exit status: 0 all is well, 77 something needed cannot be had
here and the last line says what, 1 a case failed.
"""
from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import build
import images
import image
import namespaces
import product
import workloads
from cluster import Cluster
from processes import Failed, Skipped, tail

SKIPPED = 77
CASES = ("plain_pod", "chart", "sidecar", "claims", "endings", "outages", "older_kubelet", "units", "two_gpus", "workloads")
NEED_IMAGE = set(CASES) - {"plain_pod", "chart"}
WORK = pathlib.Path("/var/tmp")
PREFIX = "gpumem-kubernetes-"


@dataclasses.dataclass
class Given:
    """What a case may use."""
    build: pathlib.Path
    image: pathlib.Path | None
    cache: pathlib.Path
    work: pathlib.Path
    shell: bool
    cases: list[str]


def arguments() -> Given:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=images.ROOT / "build/release", help="build folder of gpumem")
    parser.add_argument("--image", type=pathlib.Path, help="gpumem's image (./dev image), in place of one of the build")
    parser.add_argument("--cache", type=pathlib.Path, default=images.ROOT / ".cache/kubernetes")
    parser.add_argument("--shell", action="store_true", help="then start a shell with kubectl; the cluster ends with it")
    parser.add_argument("--inside", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=" ".join(CASES))
    read = parser.parse_args()
    if unknown := set(read.cases) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}")
    read.cache.mkdir(parents=True, exist_ok=True)
    return Given(read.build.resolve(), read.image and read.image.resolve(), read.cache.resolve(), read.inside, read.shell,
                 read.cases or list(CASES))


def skip(why: object) -> int:
    print(f"gpumem: skipped: kubernetes: {why}")
    return SKIPPED


def outside(given: Given) -> int:
    """Builds what is missing, and goes on inside."""
    if why := namespaces.missing():
        return skip(why)
    try:
        build.cluster_programs(given.cache)
        build.helm(given.cache)
        if "older_kubelet" in given.cases:
            for module in (build.OLDEST_KUBELET, build.KUBELET_WITHOUT_DRA):
                build.kubelet(given.cache, module)
    except build.Unavailable as why:
        return skip(why)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # cleans up, too
    namespaces.remove_leftovers(WORK, PREFIX)
    work = WORK / f"{PREFIX}{os.getpid()}"
    work.mkdir()
    try:
        made = make_images(given, work)
        more = ["--image", str(made)] if made else []
        return namespaces.enter([sys.executable, "-B", *sys.argv, *more, "--inside", str(work)], work)
    except Failed as failure:
        print(f"failed: {failure}")
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)


def make_images(given: Given, work: pathlib.Path) -> pathlib.Path | None:
    """Gpumem's image, if a case needs one. Out here, as there is no archive of Debian inside. Errors: Failed."""
    own_image = not given.image and set(given.cases) & NEED_IMAGE
    if not own_image and "workloads" not in given.cases:
        return given.image
    packages = product.make_packages(given.build, work)
    if "workloads" in given.cases:
        workloads.make(given.build, packages, work)
    return image.build(packages, work)[0] if own_image else given.image


def inside(given: Given) -> int:
    programs = build.cluster_programs(given.cache)
    shown = [images.ROOT, given.build, given.cache, *([given.image.parent] if given.image else [])]
    namespaces.furnish(given.work, [folder for folder in shown if folder.is_dir()])
    cluster = Cluster(programs, given.work)
    status = 0
    try:
        cluster.start(images.make(given.work))
        print("the cluster is ready", flush=True)
        status = run_cases(cluster, given)
    except Failed as failure:
        report(cluster, failure)
        status = 1
    if given.shell:
        print(f"kubectl speaks to the cluster; its logs are in {cluster.logs}; leave the shell to end it", flush=True)
        subprocess.run([os.environ.get("SHELL", "/bin/sh")], env=os.environ | cluster.environment())
    return status


def run_cases(cluster: Cluster, given: Given) -> int:
    """Errors: Failed."""
    status = 0
    for name in given.cases:
        began = time.monotonic()
        try:
            importlib.import_module(f"cases.{name}").run(cluster, given)
            print(f"{name}: good, after {time.monotonic() - began:.0f} s", flush=True)
        except Skipped as why:
            print(f"gpumem: skipped: kubernetes: {name}: {why}", flush=True)
            status = SKIPPED
    return status


def report(cluster: Cluster, failure: Failed) -> None:
    print(f"failed: {failure}")
    for process in cluster.processes:
        print(f"--- the end of {process.log.name}:\n{tail(process.log)}")


def main() -> int:
    given = arguments()
    return inside(given) if given.work else outside(given)


if __name__ == "__main__":
    sys.exit(main())
