"""A machine of its own for the cluster: mounts, processes, network and control groups that end with the test.

`enter` starts a program as process 1 of new namespaces. That program calls `furnish`, which puts an overlay over this
machine's files: what the cluster writes is gone afterwards, and nothing outside sees it.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
MNT_DETACH = 2
# On the disk and not on the overlay: images are overlays, too, and the kubelet measures its disk.
ON_DISK = ("var/lib/containerd", "var/lib/kubelet", "var/log/pods")
END_SECONDS = 10
CGROUPS = pathlib.Path("/sys/fs/cgroup")
_libc = ctypes.CDLL(None, use_errno=True)


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class ControlGroups:
    """A control group in each hierarchy of this machine, below the one we are in."""

    def __init__(self, name: str) -> None:
        self._folders = [group / name for group in _own_groups()]

    def __enter__(self) -> "ControlGroups":
        for folder in self._folders:
            folder.mkdir()
            for setting in ("cpuset.cpus", "cpuset.mems"):  # version 1 does not inherit them
                if (folder / setting).exists() and not (folder / "cgroup.controllers").exists():
                    (folder / setting).write_text((folder.parent / setting).read_text())
        return self

    def join(self) -> None:
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *_: object) -> None:
        # Of processes that were killed a moment ago some may not have ended yet.
        deadline = time.monotonic() + END_SECONDS
        while not all([_is_removed(folder) for folder in self._folders]) and time.monotonic() < deadline:
            time.sleep(0.1)


def _is_removed(folder: pathlib.Path) -> bool:
    for below, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(below)
    return not folder.exists()


def _own_groups() -> list[pathlib.Path]:
    """Our own control group in each hierarchy. Of version 2 alone: the root, as a group with processes has no
    controllers for groups below it."""
    mounts = {}
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        front, back = line.split(" - ")
        kind, _, options = back.split(" ", 2)
        if kind == "cgroup":
            for option in options.split(","):
                mounts[option] = pathlib.Path(front.split()[4])
    if not mounts:
        return [CGROUPS]
    found = []
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controllers.split(",")[0] in mounts:
            found.append(mounts[controllers.split(",")[0]] / path.lstrip("/"))
    return found


def enter(words: list[str], work: pathlib.Path) -> int:
    """Runs `words` as process 1 of new namespaces, and returns its exit status. When it or this process ends, everything
    ends that it has started. Needs root."""
    with ControlGroups(work.name) as groups:
        def prepare() -> None:
            die_with_parent()
            groups.join()
        command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child", *words]
        return subprocess.run(command, preexec_fn=prepare).returncode


def furnish(work: pathlib.Path, shown: list[pathlib.Path]) -> None:
    """Gives this process, the first of its namespaces, files of its own. Files that it writes below `work` and into the
    folders `shown` remain afterwards."""
    run("mount", "--make-rprivate", "/")
    root = work / "root"
    for name in ("root", "upper", "scratch"):
        (work / name).mkdir()
    run("mount", "-t", "overlay", "-o", f"lowerdir=/,upperdir={work}/upper,workdir={work}/scratch", "overlay", root)
    run("mount", "--rbind", "/dev", root / "dev")
    run("mount", "-t", "proc", "proc", root / "proc")
    run("mount", "-t", "sysfs", "sysfs", root / "sys")
    for name, mode in (("dev/shm", "1777"), ("tmp", "1777"), ("run", "755"), ("var/tmp", "1777")):
        run("mount", "-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", root / name)
    for name in ON_DISK:
        (work / name).mkdir(parents=True)
        (root / name).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", work / name, root / name)
    for folder in [work, *shown]:
        inside = root / str(folder).lstrip("/")
        inside.mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", folder, inside)
    mount_cgroups(root / "sys/fs/cgroup")
    _change_root(root)
    run("mount", "--make-rshared", "/")  # as systemd has it, and the kubelet expects it
    run("ip", "link", "set", "lo", "up")


def _change_root(root: pathlib.Path) -> None:
    old = root / "mnt"
    number = SYS_PIVOT_ROOT[os.uname().machine]
    if _libc.syscall(number, str(root).encode(), str(old).encode()) != 0:
        raise OSError(ctypes.get_errno(), "pivot_root")
    os.chdir("/")
    if _libc.umount2(b"/mnt", MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "umount2")


def mount_cgroups(folder: pathlib.Path) -> None:
    """The hierarchies as they are outside, each with our own group as its root."""
    lines = [line.split(":", 2)[1] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
    if lines == [""]:
        run("mount", "-t", "cgroup2", "cgroup2", folder)
        (folder / "init").mkdir()
        (folder / "init/cgroup.procs").write_text(str(os.getpid()))
        controllers = (folder / "cgroup.controllers").read_text().split()
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
        return
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    for controllers in filter(None, lines):
        name = controllers.removeprefix("name=")
        (folder / name).mkdir()
        options = f"none,{controllers}" if controllers.startswith("name=") else controllers
        run("mount", "-t", "cgroup", "-o", options, "cgroup", folder / name)


def remove_leftovers(parent: pathlib.Path, prefix: str) -> None:
    """Removes the work folders of runs that were killed: `prefix` and a process id."""
    for folder in parent.glob(f"{prefix}*"):
        owner = folder.name.removeprefix(prefix)
        if owner.isdigit() and not pathlib.Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)
            ControlGroups(folder.name).__exit__()


def missing() -> str:
    """The reason why this machine cannot make namespaces; empty if it can."""
    if os.getuid() != 0:
        return "a machine of its own takes root"
    for program in ("unshare", "ip", "openssl", "busybox"):
        if not shutil.which(program):
            return f"{program} is not installed (Debian: util-linux, iproute2, openssl, busybox-static)"
    tried = subprocess.run(["unshare", "--mount", "--net", "--pid", "--cgroup", "--fork", "true"], stderr=subprocess.PIPE)
    return f"this machine lets nobody make namespaces: {tried.stderr.decode(errors='replace')}" if tried.returncode else ""
