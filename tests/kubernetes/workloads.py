"""An image as a user has one: Python with the module gpumem, and a program that knows the driver alone. Nothing else of gpumem
is in it but the files of the simulated driver, which lie on the node where there is a GPU."""
from __future__ import annotations

import pathlib
import shutil
import tempfile

import images
import oci
import rootfs

NAME = f"{images.REGISTRY}/workloads:test"
PACKAGES = ("libgpumem0", "python3-gpumem")
SIMULATED = "usr/lib*/**/sim/libcuda.so.1"
PROGRAM = oci.Program(["/usr/bin/python3"], {"PATH": "/usr/bin:/bin"})


def archive(work: pathlib.Path) -> pathlib.Path:
    """Where make() writes it, and the cases find it."""
    return work / "workloads.tar"


def make(build: pathlib.Path, packages: pathlib.Path, work: pathlib.Path) -> None:
    """Of `build`'s packages, which are in the folder `packages`, and of Debian's."""
    own = [next(packages.glob(f"{name}_*.deb")) for name in PACKAGES]
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        root = pathlib.Path(scratch) / "root"
        debian = rootfs.download(rootfs.dependencies(own, set()) + ["libstdc++6"], pathlib.Path(scratch) / "packages")
        rootfs.make(root, debian + own)
        shutil.copy2(build / "tests/kubernetes/driver_program", root / "usr/bin")
        client = pathlib.Path(scratch) / "client"
        client.mkdir()
        rootfs.unpack(next(packages.glob("gpumem_*.deb")), client)
        [library] = client.glob(SIMULATED)
        shutil.copytree(library.parent, root / library.parent.relative_to(client), symlinks=True)
        oci.write(archive(work), NAME, root, PROGRAM)
