"""The commands of `python3 -m gpumem.safetensors`, which `gpumem publish`, `cat` and `verify` run for files of safetensors."""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from . import _memory
from .errors import Code, GpumemError, InvalidArgument, Unavailable
from .layout import MAGIC, MOST_BYTES
from .publish import Publication
from .region import Region, Sharing
from .safetensors import STAGING_BYTES, UnfitFile, header_of, opened, publish_safetensors
from .session import Session

_LOOK_SECONDS = 2.0
_SHARING = {"private": Sharing.PRIVATE, "group": Sharing.GROUP, "public": Sharing.PUBLIC}


def main(arguments: list[str] | None = None) -> int:
    """Answers the exit status: 0 done; 1 failed, or the answer is no; 3 no broker."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return int(given.run(given))
    except GpumemError as error:
        hint = "; --raw publishes the bytes of any file" if isinstance(error, UnfitFile) and given.run is _publish else ""
        return _report(error.message + hint, 3 if error.code == Code.UNAVAILABLE and not _broker_listens() else 1)
    except OSError as error:
        return _report(f"{error.filename or 'standard output'}: {error.strerror}")
    except KeyboardInterrupt:
        return _report("interrupted: nothing is published" if given.run is _publish else "interrupted")


def _report(words: str, status: int = 1) -> int:
    print(f"gpumem: {words}", file=sys.stderr)
    return status


def _broker_listens() -> bool:
    """Whether there is a broker: then it has refused, and is not missing."""
    folder = os.environ.get("GPUMEM_RUNTIME_DIR") or "/run/gpumemd"
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(f"{folder}/api.sock") == 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m gpumem.safetensors", allow_abbrev=False, description=(
        "Regions of arrays and files of safetensors. Times are seconds. The options are those of gpumem(1)."))
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    publish = commands.add_parser("publish", allow_abbrev=False, help="publish the tensors of a file as arrays")
    publish.add_argument("file")
    publish.add_argument("--name", help="of the region [the file's]")
    publish.add_argument("--sharing", default="private", help="private, group, public, or tenants with commas between them")
    publish.add_argument("--device", help="UUID [the first]")
    publish.add_argument("--life", type=float, help="end it after this time")
    publish.add_argument("--keep", action="store_true", help="leave it behind: it outlives this program")
    publish.add_argument("--linger", type=float, help="with --keep: end it so long after its last process has left it")
    publish.add_argument("--seal", action="store_true", help="nobody writes to it from now on")
    publish.add_argument("--wait", type=float, default=0.0, help="for memory that others hold")
    publish.add_argument("--json", action="store_true")
    publish.add_argument("--gpumem", default="gpumem", metavar="PROGRAM", help="the command that lists regions [gpumem]")
    publish.set_defaults(run=_publish)
    cat = commands.add_parser("cat", allow_abbrev=False, help="write a region of arrays as a file to standard output")
    verify = commands.add_parser("verify", allow_abbrev=False, help="compare a region of arrays with a file")
    for command in (cat, verify):
        command.add_argument("name")
        command.add_argument("--owner", default="", help="the tenant that has published it [one's own]")
        command.add_argument("--version", type=int, default=0, help="this version of it [the newest]")
        command.add_argument("--wait", type=float, default=0.0, help="for it to be published")
    cat.set_defaults(run=_cat)
    verify.add_argument("file")
    verify.add_argument("--json", action="store_true")
    verify.set_defaults(run=_verify)
    return parser


def _publish(given: argparse.Namespace) -> int:
    name = os.path.basename(given.file) if given.name is None else given.name
    readers = [] if given.sharing in _SHARING else given.sharing.split(",")
    with Session.connect(label="gpumem") as session:
        begun = time.monotonic()
        published = publish_safetensors(
            session, given.file, name, progress=sys.stderr.isatty(), device=given.device, life=given.life, keep=given.keep,
            linger=given.linger, seal=given.seal, wait=given.wait, sharing=_SHARING.get(given.sharing, Sharing.NAMED),
            readers=readers)
        try:
            _tell(given, session, published)
            if not given.keep:
                _hold(given, session, published, begun)
        except KeyboardInterrupt:
            pass  # it is published, and ends with this program unless it is kept
        finally:
            published.release()
    return 0


def _tell(given: argparse.Namespace, session: Session, published: Publication) -> None:
    count, size = len(published.layout.arrays), published.layout.size
    if given.json:
        text = json.dumps({"name": published.name, "owner": session.tenant, "version": published.version,
                           "device": published.device, "bytes": size, "arrays": count,
                           "sharing": given.sharing, "session": session.id}, indent=2)
    else:
        text = (f"published {published.name!r}, version {published.version}: {_amount(size)} in {count} "
                f"array{'' if count == 1 else 's'} on {_device_name(session, published.device)}, sharing {given.sharing}; kept {_how_long(given)}")
    print(text, flush=True)


def _device_name(session: Session, uuid: str) -> str:
    """`gpu0`, by the place in `gpumem status`."""
    return f"gpu{[one.device for one in session.usage()].index(uuid)}"


def _how_long(given: argparse.Namespace) -> str:
    ends = [f"{given.life:g} s are over"] if given.life else []
    if not given.keep:
        ends.insert(0, "this program is interrupted")
    elif given.linger:
        ends.append(f"{given.linger:g} s after its last process has left it")
    return "until " + (" or ".join(ends) or "it is removed (gpumem regions rm)")


def _hold(given: argparse.Namespace, session: Session, published: Publication, begun: float) -> None:
    """Until the region's life is over. Raises GpumemError: the region has ended otherwise; KeyboardInterrupt."""
    end = begun + given.life if given.life else float("inf")
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_SECONDS))
        try:
            session.ping()
        except Unavailable:
            continue  # the broker may come back, and the session goes on then
        if not _is_listed(given.gpumem, session, published.version) and end - time.monotonic() > _LOOK_SECONDS:
            raise GpumemError(f"region {published.name!r}, version {published.version}, has ended: it was removed, or the "
                              "broker was started without its memory. This program gives the memory back", Code.NOT_FOUND)


def _is_listed(program: str, session: Session, version: int) -> bool:
    """Whether the broker has the region. True, if it cannot be asked."""
    try:
        asked = subprocess.run([program, "regions", "--json", "--owner", session.tenant], capture_output=True)
    except OSError:
        return True
    return asked.returncode != 0 or any(one["version"] == version for one in json.loads(asked.stdout)["regions"])


@contextlib.contextmanager
def _mapped(given: argparse.Namespace) -> Iterator[Region]:
    with Session.connect(label="gpumem") as session:
        region = session.map_region(given.name, owner=given.owner, version=given.version, wait=given.wait)
        with region:
            yield region


def _has_arrays(region: Region) -> bool:
    """Layouts are their publishers': what does not begin as one of arrays is of something else."""
    if not 0 < region.layout <= MOST_BYTES:
        return False
    with _memory.copies(region.ordinal) as copies:
        begins: bytes = copies.copy_out(region.address + region.size - region.layout, min(region.layout, len(MAGIC)))
    return begins == MAGIC


def _cat(given: argparse.Namespace) -> int:
    with _mapped(given) as region:
        parts = [(0, region.size)]
        if _has_arrays(region):
            try:
                layout = region.read_layout()
                _write(header_of(layout))
            except InvalidArgument as error:
                raise InvalidArgument(f"cannot write the region as a file of safetensors: {error}; --raw writes the region's "
                                      "bytes as they are") from None
            parts = [(one.offset, one.nbytes) for one in layout.arrays]
        with _memory.copies(region.ordinal) as copies:
            for begin, size in parts:
                for at in range(0, size, STAGING_BYTES):
                    _write(copies.copy_out(region.address + begin + at, min(STAGING_BYTES, size - at)))
    return 0


def _write(piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(sys.stdout.fileno(), rest):]


def _verify(given: argparse.Namespace) -> int:
    """Compares all that the file is published as, layout included: two files of the same bytes may have other arrays."""
    with _mapped(given) as region, opened(given.file) as file, _memory.copies(region.ordinal) as copies:
        size, different = file.layout.size, _first_difference(region, copies, file.region())
        if different is None and size != region.size:
            different = min(size, region.size)
        found = {"name": given.name, "version": region.version, "equal": different is None, "first_difference": different,
                 "region_bytes": region.size, "file_bytes": size}
        in_layout = different is not None and different >= region.size - region.layout
    text = f"'{given.name}' and {given.file} are equal: {_amount(size)}"
    if different is not None:
        text = f"'{given.name}' and {given.file} differ from byte {different} on"
        if size != found["region_bytes"]:
            text += f"; the region has {found['region_bytes']} bytes, the file {size}"
        if in_layout:
            text += ": the arrays' bytes are equal, their names, types, shapes or metadata are not"
    print(json.dumps(found, indent=2) if given.json else text, flush=True)
    return 0 if different is None else 1


def _first_difference(region: Region, copies: Any, pieces: Iterable[bytes | memoryview]) -> int | None:
    """As far as both reach."""
    at = 0
    for piece in pieces:
        there = copies.copy_out(region.address + at, min(len(piece), max(0, region.size - at)))
        if there != piece[:len(there)]:
            return at + next(i for i, (mine, its) in enumerate(zip(there, piece)) if mine != its)
        at += len(piece)
    return None


def _amount(size: int) -> str:
    """As the command `gpumem` shows it: 3.5GiB."""
    unit = max(0, (size.bit_length() - 1) // 10)
    text = f"{size * 100 // (1 << 10 * unit) / 100:.2f}".rstrip("0").rstrip(".")
    return text + ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")[unit]
