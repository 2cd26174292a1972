"""The files of an image: Debian packages and what they depend on, unpacked. Nothing is installed and no script runs."""
from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

# Debian's packages name files below /lib; the directories below /usr are the real ones.
MERGED = ("bin", "lib", "lib64", "sbin")
# What nothing in a container reads. Licences stay.
UNUSED = ("etc/default", "usr/lib/systemd", "usr/lib/sysusers.d", "usr/lib/tmpfiles.d", "usr/lib/x86_64-linux-gnu/gconv",
          "usr/share/bug", "usr/share/lintian", "usr/share/locale", "usr/share/man")
FILES = {
    "etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def field(package: pathlib.Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "-f", package, name], check=True, capture_output=True, text=True).stdout.strip()


def dependencies(packages: list[pathlib.Path], without: set[str]) -> list[str]:
    """What `packages` depend on but each other and `without`. Of alternatives, the first."""
    own = {field(package, "Package") for package in packages} | without
    needed = set()
    for package in packages:
        for clause in field(package, "Depends").split(","):
            name = re.match(r"\s*([a-z0-9.+-]+)", clause)
            if name and name[1] not in own:
                needed.add(name[1])
    return sorted(needed)


def download(names: list[str], into: pathlib.Path) -> list[pathlib.Path]:
    """The files of the packages `names` and of everything they depend on, from this machine's Debian archive."""
    (into / "partial").mkdir(parents=True, exist_ok=True)
    # To apt nothing is installed here, so that it brings everything.
    settings = {"Dir::State::status": "/dev/null", "Dir::Cache::archives": str(into), "Debug::NoLocking": "1",
                "APT::Install-Recommends": "0", "APT::Sandbox::User": ""}
    options = [f"-o{key}={value}" for key, value in settings.items()]
    done = subprocess.run(["apt-get", "-qy", *options, "--download-only", "install", *names],
                          capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"image: apt cannot bring {' '.join(names)}:\n{done.stdout}{done.stderr}"
                         "(without package lists: apt-get update)")
    return sorted(into.glob("*.deb"))


def unpack(package: pathlib.Path, root: pathlib.Path) -> None:
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as content:
        subprocess.run(["tar", "-C", root, "-x", "--keep-directory-symlink", "--no-same-owner"],
                       stdin=content.stdout, check=True)
    if content.returncode:
        raise SystemExit(f"image: {package} is no package")
    # Scanners for known weaknesses read there what an image without dpkg consists of.
    status = root / "var/lib/dpkg/status.d" / field(package, "Package")
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_bytes(subprocess.run(["dpkg-deb", "-f", package], check=True, capture_output=True).stdout)


def drop_unused(root: pathlib.Path) -> None:
    for name in UNUSED:
        shutil.rmtree(root / name, ignore_errors=True)
    for file in (root / "usr/share/doc").rglob("*"):
        if not file.is_dir() and file.name != "copyright":
            file.unlink()


def make(root: pathlib.Path, packages: list[pathlib.Path]) -> None:
    """Unpacks `packages` into the new folder `root`."""
    root.mkdir(parents=True)
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        unpack(package, root)
    drop_unused(root)
    for name in ("dev", "etc", "proc", "run", "sys", "tmp", "var/lib"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name, content in FILES.items():
        (root / name).write_text(content)
