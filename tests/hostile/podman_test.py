"""Every user of a person's containers, by rootless Podman, is that person for the broker.

Skipped, in words, where no container can be started: it needs root, Podman, newuidmap and a runtime that works here.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
NAME, UID, FIRST = "gpumem-podman", 61101, 710_000  # the person, and the first of the subordinate ids
PROGRAMS = ("podman", "newuidmap", "newgidmap", "unshare", "setpriv")
CONFIG = f'[broker]\nreserve = "all-but 128MiB"\nsocket_group = {UID}\n[default]\nlimit = "64MiB"\n'
INSIDE, PROGRAM = "/gpumem", "/programs/gpumem"  # in a container: the sockets, and the command


def skip(why: str) -> None:
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


class Person:
    """A user with subordinate ids, known in this mount namespace alone."""

    def __init__(self, folder: pathlib.Path):
        self.home = folder / "home"
        lines = {"passwd": f"{NAME}:x:{UID}:{UID}::{self.home}:/bin/sh", "group": f"{NAME}:x:{UID}:",
                 "subuid": f"{NAME}:{FIRST}:65536", "subgid": f"{NAME}:{FIRST}:65536"}
        for name, line in lines.items():
            file, known = folder / name, pathlib.Path("/etc", name)
            known.touch()
            file.write_text(known.read_text() + line + "\n")
            file.chmod(0o644)
            subprocess.run(["mount", "--bind", file, known], check=True)
        self.root = self.home / "root"
        for place in ("usr", "proc", "dev", "sys", "tmp", "etc", "run", "var/tmp", "gpumem", "programs"):
            (self.root / place).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (self.root / name).symlink_to(f"usr/{name}")
        (self.home / "run").mkdir(mode=0o700)
        subprocess.run(["chown", "-R", f"{UID}:{UID}", self.home], check=True)

    def command(self, *words: str | pathlib.Path) -> list[str]:
        return ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "env", "-i", f"HOME={self.home}",
                f"XDG_RUNTIME_DIR={self.home}/run", f"PATH={os.environ['PATH']}", *map(str, words)]

    def run(self, *words: str | pathlib.Path) -> tuple[int, str]:
        """The exit status, and what was said. Podman leaves a process behind, which keeps what it writes to open."""
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(self.command(*words), cwd="/", stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                  timeout=120, check=False)
            said.seek(0)
            return done.returncode, said.read().strip()

    def contained(self, runtime: str, user: int, mounts: dict[pathlib.Path, str], *words: str) -> tuple[int, str]:
        volumes = [f"--volume={host}:{inside}:ro" for host, inside in {pathlib.Path("/usr"): "/usr", **mounts}.items()]
        return self.run("podman", "--cgroup-manager=cgroupfs", f"--runtime={runtime}", "run", "--rm", "--network=none",
                        f"--user={user}:0", *volumes, "--rootfs", self.root, *words)


def working_runtime(person: Person) -> str:
    said = ""
    for runtime in ("crun", "runc"):
        status, words = person.contained(runtime, 0, {}, "/bin/true")
        if status == 0:
            return runtime
        said += f" {runtime}: {(words.splitlines() or ['no word'])[-1]}"
    skip(f"no container of rootless Podman starts here:{said}")
    return ""


def start_broker(build: pathlib.Path, folder: pathlib.Path) -> subprocess.Popen[bytes]:
    (folder / "config").write_text(CONFIG)
    log = (folder / "log").open("w")
    broker = subprocess.Popen([build / "daemon/gpumemd", "--simulate", "1x256MiB", "--runtime-dir", folder / "run",
                               "--config", folder / "config"], stdout=log, stderr=log)
    end = time.monotonic() + 60
    while "serving on" not in (folder / "log").read_text():
        assert broker.poll() is None and time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.02)
    return broker


def check(build: pathlib.Path, folder: pathlib.Path, person: Person, runtime: str) -> None:
    gpumem = build / "client/cli/gpumem"

    def reserve(amount: str, *command: str, folder: str = str(folder / "run"), program: str = str(gpumem)) -> list[str]:
        return [program, "reserve", f"--runtime-dir={folder}", "--wait=10ms", amount, "--", *command]

    outside = subprocess.Popen(person.command(*reserve("40MiB", "/bin/sh", "-c", "echo begun; exec sleep 600")),
                               stdout=subprocess.PIPE, text=True)
    try:
        assert outside.stdout is not None and outside.stdout.readline() == "begun\n"
        for user in (0, 1, 60_000):
            for amount, is_granted in (("40MiB", False), ("20MiB", True)):
                status, words = person.contained(runtime, user, {folder / "run": INSIDE, gpumem.parent: "/programs"},
                                                 *reserve(amount, "/bin/true", folder=INSIDE, program=PROGRAM))
                print(f"user {user} of a container, {amount}: {status} {words}", flush=True)
                assert (status == 0) == is_granted
                assert is_granted or "limit of 64MiB, 40MiB are charged" in words
    finally:
        outside.send_signal(signal.SIGTERM)
        outside.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build.resolve()
    if os.geteuid() != 0:
        skip("it makes a user, which only root can")
    for program in PROGRAMS:
        if shutil.which(program) is None:
            skip(f"{program} is not installed")
    if os.environ.get("GPUMEM_PODMAN_TEST") is None:  # users and mounts of its own
        os.environ["GPUMEM_PODMAN_TEST"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation=slave", sys.executable, "-B", *sys.argv])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        person = Person(folder)
        runtime = working_runtime(person)
        broker = start_broker(build, folder)
        try:
            check(build, folder, person, runtime)
        finally:
            broker.send_signal(signal.SIGTERM)
            broker.wait(30)
            person.run("podman", "system", "migrate")  # ends its pause process


if __name__ == "__main__":
    main()
