"""The archive of a container image is whole and reproducible, and its packages are found. No cluster and no network."""
from __future__ import annotations

import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy/kubernetes/image"))
import image
import oci
import rootfs

NAME = "localhost/tried:1.0"
PROGRAM = oci.Program(["/bin/program"], {"PATH": "/bin"}, {"title": "tried"})


class InFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def make_root(self, name: str, time: int) -> pathlib.Path:
        root = self.work / name
        (root / "bin").mkdir(parents=True)
        for file in ("program", "another"):
            (root / "bin" / file).write_text(file)
            os.utime(root / "bin" / file, (time, time))
        (root / "bin/link").symlink_to("program")
        (root / "bin/program").chmod(0o755)
        return root

    def make_package(self, name: str, depends: str = "") -> pathlib.Path:
        tree = self.work / f"{name}-tree"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "lib").mkdir()
        (tree / "lib" / f"{name}.so").write_text(name)
        (tree / "usr/share/man").mkdir(parents=True)
        (tree / "usr/share/man/page").write_text("words")
        depends_field = f"Depends: {depends}\n" if depends else ""
        (tree / "DEBIAN/control").write_text(f"Package: {name}\nVersion: 1.0-1\nArchitecture: amd64\nMaintainer: nobody\n"
                                             f"{depends_field}Description: tried\n")
        file = self.work / f"{name}_1.0-1_amd64.deb"
        subprocess.run(["dpkg-deb", "-b", tree, file], check=True, stdout=subprocess.DEVNULL)
        return file


class Archive(InFolder):
    def test_the_same_files_give_the_same_bytes(self) -> None:
        written = []
        for name, time in (("one", 1), ("other", 2)):
            oci.write(self.work / f"{name}.tar", NAME, self.make_root(name, time), PROGRAM)
            written.append((self.work / f"{name}.tar").read_bytes())
        self.assertEqual(written[0], written[1])

    def test_every_blob_is_what_its_name_says_and_is_referred_to(self) -> None:
        digest = oci.write(self.work / "image.tar", NAME, self.make_root("root", 1), PROGRAM)
        with tarfile.open(self.work / "image.tar") as archive:
            content = {entry.name: archive.extractfile(entry).read() for entry in archive}
        blobs = {name: data for name, data in content.items() if name.startswith("blobs/")}
        for name, data in blobs.items():
            self.assertEqual(name, f"blobs/sha256/{hashlib.sha256(data).hexdigest()}")
        [described] = json.loads(content["index.json"])["manifests"]
        self.assertEqual(described["digest"], digest)
        self.assertEqual(described["annotations"]["io.containerd.image.name"], NAME)
        manifest = json.loads(blobs["blobs/" + digest.replace(":", "/")])
        for part in (manifest["config"], *manifest["layers"]):
            self.assertEqual(len(blobs["blobs/" + part["digest"].replace(":", "/")]), part["size"])
        [docker] = json.loads(content["manifest.json"])
        self.assertLessEqual({docker["Config"], *docker["Layers"]}, set(blobs))

    def test_files_belong_to_root_and_keep_their_modes(self) -> None:
        layer = oci.layer_of(self.make_root("root", 1))
        with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
            entries = {entry.name: entry for entry in archive}
        self.assertEqual({entry.uid for entry in entries.values()}, {0})
        self.assertEqual(entries["bin/program"].mode, 0o755)
        self.assertEqual(entries["bin/link"].linkname, "program")


class Files(InFolder):
    def test_packages_need_what_they_name_but_each_other(self) -> None:
        packages = [self.make_package("gpumemd", "gpumem (= 1.0-1), systemd, libc6 (>= 2.36), libfmt9 | libfmt8"),
                    self.make_package("gpumem", "libc6")]
        self.assertEqual(rootfs.dependencies(packages, {"systemd"}), ["libc6", "libfmt9"])

    def test_what_is_unpacked_lies_below_usr_and_is_listed_for_scanners(self) -> None:
        root = self.work / "root"
        rootfs.make(root, [self.make_package("gpumem")])
        self.assertTrue((root / "usr/lib/gpumem.so").is_file())
        self.assertTrue((root / "lib").is_symlink())
        self.assertFalse((root / "usr/share/man").exists())
        self.assertIn("Package: gpumem", (root / "var/lib/dpkg/status.d/gpumem").read_text())

    def test_a_missing_package_is_named(self) -> None:
        self.make_package("gpumemd")
        with self.assertRaisesRegex(SystemExit, "has no package gpumem, libgpumem0"):
            image.own_packages(self.work)


if __name__ == "__main__":
    unittest.main()
