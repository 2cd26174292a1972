"""The images of the tests, made of this machine's busybox: no registry is asked."""
from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/kubernetes/image"))
import oci
import settings

REGISTRY = "localhost"
BUSYBOX = f"{REGISTRY}/busybox:test"
# More seconds than any test takes.
FOREVER = "2147483647"


def make(work: pathlib.Path) -> list[pathlib.Path]:
    """The archives of the pause image, which holds a pod's namespaces, and of a shell."""
    root = work / "busybox"
    (root / "bin").mkdir(parents=True)
    for folder in ("dev", "etc", "proc", "sys", "tmp"):
        (root / folder).mkdir()
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    busybox = shutil.which("busybox")
    assert busybox, "busybox is not installed"
    shutil.copy(busybox, root / "bin/busybox")
    for name in subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    programs = {settings.PAUSE: ["/bin/sleep", FOREVER], BUSYBOX: ["/bin/sh"]}
    archives = []
    for number, (name, words) in enumerate(programs.items()):
        archives.append(work / f"image-{number}.tar")
        oci.write(archives[-1], name, root, oci.Program(words, {"PATH": "/bin"}))
    return archives
