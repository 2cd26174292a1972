#!/usr/bin/env python3
"""Puts libgpumem into a wheel. Usage: wheel.py PURE_WHEEL LIBRARY FOLDER

Writes the wheel into FOLDER, for the oldest glibc that the library is promised to load with, and prints where it is.
"""
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

NAME = "gpumem/libgpumem.so.0"
OLDEST = (2, 28)  # glibc that is promised; older ones are not tried


def platform_of(library: pathlib.Path) -> str:
    """manylinux_2_28_x86_64, for example."""
    said = subprocess.run(["objdump", "-T", library], capture_output=True, text=True, check=True).stdout
    needed = [tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", said)]
    newest = max(needed + [OLDEST])
    machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout.strip()
    return f"manylinux_{newest[0]}_{newest[1]}_{machine}"


def stripped(library: pathlib.Path) -> bytes:
    with tempfile.NamedTemporaryFile() as into:
        subprocess.run(["strip", "--strip-unneeded", "-o", into.name, library], check=True)
        return pathlib.Path(into.name).read_bytes()


def record(files: dict[str, bytes], name: str) -> bytes:
    lines = [f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip('=')},"
             f"{len(content)}" for path, content in files.items()]
    return "\n".join([*lines, f"{name},,", ""]).encode()


def main() -> int:
    pure, library, folder = map(pathlib.Path, sys.argv[1:])
    platform = platform_of(library)
    with zipfile.ZipFile(pure) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    [about] = [name for name in files if name.endswith(".dist-info/WHEEL")]
    listing = about.replace("WHEEL", "RECORD")
    del files[listing]
    files[about] = re.sub(rb"(?m)^Tag: .*$", b"Tag: py3-none-" + platform.encode(),
                          files[about].replace(b"Root-Is-Purelib: true", b"Root-Is-Purelib: false"))
    files[NAME] = stripped(library)
    files[listing] = record(files, listing)
    made = folder / pure.name.replace("none-any", f"none-{platform}")
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)  # of 1980: the same input makes the same wheel
            entry.external_attr = (0o755 if name == NAME else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
