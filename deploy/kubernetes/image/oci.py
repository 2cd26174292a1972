"""Container images without a registry: an archive with an OCI layout, which `ctr image import`, `podman load` and
`docker load` take.

Equal files give equal bytes: entries are sorted, belong to root and have no time of their own.
"""
from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import pathlib
import tarfile

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
EPOCH = "1970-01-01T00:00:00Z"


@dataclasses.dataclass(frozen=True)
class Program:
    """The program that a container of the image starts, unless its pod says otherwise."""
    entrypoint: list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    labels: dict[str, str] = dataclasses.field(default_factory=dict)


class _Blobs:
    """The blobs of a layout, named by their SHA-256."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def add(self, kind: str, content: bytes) -> dict:
        """The descriptor of `content`, which is in the archive now."""
        digest = hashlib.sha256(content).hexdigest()
        add_file(self._archive, f"blobs/sha256/{digest}", content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}


def add_file(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def layer_of(root: pathlib.Path) -> bytes:
    """The tar of all files below `root`, not compressed."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            archive.add(path, str(path.relative_to(root)), recursive=False, filter=_without_owner)
    return written.getvalue()


def write(file: pathlib.Path, name: str, root: pathlib.Path, program: Program) -> str:
    """Writes the image `name` (registry/repository:tag) of the files below `root` to `file`; its manifest's digest."""
    layer = layer_of(root)
    packed = gzip.compress(layer, 6, mtime=0)
    config = _json({
        "architecture": "amd64", "os": "linux", "created": EPOCH,
        "config": {"Entrypoint": program.entrypoint, "Labels": program.labels,
                   "Env": [f"{key}={value}" for key, value in program.environment.items()]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": EPOCH, "created_by": "deploy/kubernetes/image"}]})
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
        blobs = _Blobs(archive)
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST,
                    "config": blobs.add(CONFIG, config), "layers": [blobs.add(LAYER, packed)]}
        described = blobs.add(MANIFEST, _json(manifest))
        # containerd takes the one name, podman the other.
        named = described | {"annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}}
        add_file(archive, "index.json", _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}))
        add_file(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        # Docker's older stores read this in place of index.json.
        blob = {part: f"blobs/{one['digest'].replace(':', '/')}" for part, one in
                (("config", manifest["config"]), ("layer", manifest["layers"][0]))}
        add_file(archive, "manifest.json",
                 _json([{"Config": blob["config"], "RepoTags": [name], "Layers": [blob["layer"]]}]))
    return described["digest"]
