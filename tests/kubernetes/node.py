"""The node's machine: processes of its pods, what ends when it does, and what is on its disk."""
from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal

from namespaces import run
from processes import until

# Files of a machine's run, below the namespaces' own /run and /dev/shm. The simulated GPU is as it was, as a real one is: the
# same device, without memory.
FORGOTTEN = ("/run/containerd", "/run/gpumemd", "/var/run/cdi", "/dev/shm")
KEPT = "/run/gpumemd/driver"
# Of the disk; images stay.
INSTALLED = ("/var/lib/kubelet", "/var/lib/gpumemd", "/var/lib/gpumem")
MOUNTS = ("/run/containerd/", "/run/netns/", "/var/lib/kubelet/pods/")


def processes_of_pod(uid: str, name: str) -> list[int]:
    """The processes of the program `name` in the pod."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and uid in (folder / "cgroup").read_text() and (folder / "comm").read_text().strip() == name:
                found.append(int(folder.name))
    return found


def _containers(programs: pathlib.Path) -> list[int]:
    """Processes of pods, and those that look after them. All are of this test's process namespace."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            is_in_pod = "kubepods" in (folder / "cgroup").read_text()
            if is_in_pod or (folder / "exe").readlink() == programs / "containerd-shim-runc-v2":
                found.append(int(folder.name))
    return found


def _is_running(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def end_containers(programs: pathlib.Path) -> None:
    def all_ended() -> bool:
        running = [pid for pid in _containers(programs) if _is_running(pid)]
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not running
    until("the containers have ended", all_ended)


def forget() -> None:
    mounted = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    for place in reversed([place for place in mounted if place.startswith(MOUNTS)]):
        run("umount", "--lazy", place)
    _empty(FORGOTTEN)


def erase() -> None:
    _empty(INSTALLED)


def _empty(folders: tuple[str, ...]) -> None:
    for entry in [entry for folder in folders if pathlib.Path(folder).exists() for entry in pathlib.Path(folder).iterdir()]:
        if entry != pathlib.Path(KEPT):
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
