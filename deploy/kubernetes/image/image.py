#!/usr/bin/env python3
"""image.py PACKAGES DIST: DIST/gpumem-VERSION-image.tar, an image of the project's Debian packages in the folder PACKAGES."""
from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import oci
import rootfs

# The project's packages that a node needs. The driver for Kubernetes may be in a package of its own.
OURS = ("gpumemd", "gpumem", "libgpumem0", "gpumem-dra")
# Named by our packages, and of no use in a container.
WITHOUT = {"systemd"}
# A shell, to copy the client's files to the node and to look around.
MORE = ["busybox-static"]
APPLETS = ("sh", "cat", "chmod", "cp", "env", "id", "ls", "mkdir", "mv", "ps", "rm", "sleep")
REPOSITORY = "localhost/gpumem"
# The broker; the other containers of the DaemonSet name their programs.
PROGRAM = oci.Program(["/usr/bin/gpumemd"], {"PATH": "/usr/bin:/bin"},
                      {"org.opencontainers.image.title": "gpumem",
                       "org.opencontainers.image.description": "broker that lends GPU memory to pods within quotas",
                       "org.opencontainers.image.licenses": "Apache-2.0"})


def own_packages(folder: pathlib.Path) -> list[pathlib.Path]:
    found = [file for name in OURS for file in sorted(folder.glob(f"{name}_*.deb"))[-1:]]
    missing = {"gpumemd", "gpumem", "libgpumem0"} - {rootfs.field(file, "Package") for file in found}
    if missing:
        raise SystemExit(f"image: {folder} has no package {', '.join(sorted(missing))} (./dev debs makes them)")
    return found


def make_root(root: pathlib.Path, packages: list[pathlib.Path]) -> None:
    """The files of the image, of `packages`, in the new folder `root`."""
    rootfs.make(root, packages)
    for name in APPLETS:
        (root / "usr/bin" / name).symlink_to("busybox")


def build(folder: pathlib.Path, dist: pathlib.Path) -> tuple[pathlib.Path, str]:
    """The archive of the image, and the image's name."""
    packages = own_packages(folder)
    version = rootfs.field(packages[0], "Version").rsplit("-", 1)[0]
    name = f"{REPOSITORY}:{version}"
    dist.mkdir(parents=True, exist_ok=True)
    archive = dist / f"gpumem-{version}-image.tar"
    with tempfile.TemporaryDirectory(prefix="gpumem-image-") as work:
        root = pathlib.Path(work) / "root"
        debian = rootfs.download(rootfs.dependencies(packages, WITHOUT) + MORE, pathlib.Path(work) / "packages")
        make_root(root, debian + packages)
        oci.write(archive, name, root, PROGRAM)
    return archive, name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", type=pathlib.Path)
    parser.add_argument("dist", type=pathlib.Path)
    given = parser.parse_args()
    archive, name = build(given.packages, given.dist)
    print(f"{archive}: {name}, {archive.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
