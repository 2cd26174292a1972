"""Publishes files of safetensors: their tensors become the arrays of a region.

    with gpumem.safetensors.publish_safetensors(session, "model.safetensors", "weights", progress=True):
        ...                 # other processes: session.map_region("weights").arrays()

The file passes through one staging buffer of host memory, whatever its size. The header is read here, strictly: a file
that says something else than it holds is refused before memory is taken. The package safetensors is not needed.
`python3 -m gpumem.safetensors` is the command line, which `gpumem publish`, `cat` and `verify` hand over to.
"""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NoReturn

from ._dtypes import DTYPES, Dtype
from .arrays import PRIVATE, private_names
from .errors import Code, GpumemError, InvalidArgument
from .layout import (MOST_DIMENSIONS, MOST_SIZE, ArrayLayout, Layout, check_name, contiguous_strides,
                     strict_json)
from .publish import Publication, publish_layout
from .session import Session

MOST_HEADER_BYTES = 100_000_000  # as the format has it
STAGING_BYTES = 16 << 20
_METADATA = "__metadata__"
_LENGTH = struct.Struct("<Q")
_DTYPES = {one.safetensors: one for one in DTYPES.values() if one.safetensors}

# Bytes done, and bytes in all.
Progress = Callable[[int, int], object]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Where a tensor lies in a file."""

    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    begin: int  # bytes, from the file's first
    end: int


class UnfitFile(InvalidArgument):
    """A file is no file of safetensors, or none whose tensors can be published."""


@dataclasses.dataclass(frozen=True)
class Header:
    """What a file says of itself."""

    tensors: tuple[Tensor, ...]  # in the order of their bytes
    metadata: Mapping[str, str]


def read_header(file: BinaryIO) -> Header:
    """The header of a file that is open for reading. Raises InvalidArgument, with the tensor's name where it is one: the
    file is truncated or longer than it says; tensors overlap, leave bytes between them, or have another size than their
    shape; a header of more than 100 MB; JSON that is none, or says something twice; types of elements that gpumem does
    not have."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    first = file.read(_LENGTH.size)
    if len(first) < _LENGTH.size:
        raise InvalidArgument(f"this is no file of safetensors: it has {size} bytes")
    [length] = _LENGTH.unpack(first)
    if length > MOST_HEADER_BYTES:
        raise InvalidArgument(f"this is no file of safetensors: its header would have {length} bytes, and it has "
                              f"{MOST_HEADER_BYTES} at most")
    data = _LENGTH.size + length
    text = file.read(length)
    if len(text) < length:
        raise InvalidArgument(f"the file is truncated: its header has {length} bytes, and {size - _LENGTH.size} are there")
    if not text.startswith(b"{"):
        raise InvalidArgument("this is no file of safetensors: its header does not begin with {")
    header = strict_json(text.rstrip(b" "), "header")
    metadata = _metadata(header.pop(_METADATA, {}))
    tensors = sorted((_tensor(name, value, data) for name, value in header.items()), key=lambda one: (one.begin, one.end))
    _check_order(tensors, data, size)
    return Header(tuple(tensors), metadata)


def publish_safetensors(session: Session, path: str | os.PathLike[str], name: str, *, private: Iterable[str] = PRIVATE,
                        metadata: Mapping[str, str] | None = None,
                        array_metadata: Mapping[str, Mapping[str, str]] | None = None, progress: Progress | bool = False,
                        staging: int = STAGING_BYTES, **options: Any) -> Publication:
    """Publishes the tensors of the file at `path` under `name`, each at a multiple of 256 bytes.

    private: patterns, as of fnmatch, of the names of which readers get a copy of their own by default.
    metadata: texts for readers, besides the file's. array_metadata: texts about single tensors, by their names.
    progress: called with the bytes done and those of all tensors after each copy; True: draws a bar on standard error.
    staging: bytes of pinned host memory, through which everything goes.
    options: of publish.publish_layout (device, wait, sharing, readers, life, slice, seal).
    Raises OSError, UnfitFile, GpumemError (the file was written to meanwhile), others as publish_layout.
    """
    if staging < 1:
        raise InvalidArgument(f"staging is {staging}; it is a number of bytes, from 1 on")
    with opened(path, private=private, metadata=metadata, array_metadata=array_metadata) as file:
        show = _bar if progress is True else progress or None

        def fill(base: int, memory: Any) -> None:
            _stream(file, base, memory, staging, show)
            file.check()

        return publish_layout(session, name, file.layout, fill, **options)


class File:
    """A file of safetensors that is open, and the layout of its tensors in a region."""

    def __init__(self, path: str, file: BinaryIO, header: Header, layout: Layout):
        """Use opened."""
        self._path, self._opened = path, os.fstat(file.fileno())
        self.number, self.tensors, self.layout = file.fileno(), header.tensors, layout

    def region(self) -> Iterator[bytes | memoryview]:
        """The bytes of the region that it is published as, in pieces. Each is good until the next one."""
        buffer, done = memoryview(bytearray(STAGING_BYTES)), 0
        for start, size, _ in _pieces(self, buffer):
            yield bytes(start - done)
            yield buffer[:size]
            done = start + size
        yield bytes(self.layout.encoded_at - done)
        yield self.layout.encoded

    def check(self) -> None:
        """Raises GpumemError, with the code ABORTED: it was written to since it was opened."""
        now = os.fstat(self.number)
        if (now.st_size, now.st_mtime_ns) != (self._opened.st_size, self._opened.st_mtime_ns):
            raise GpumemError(f"{self._path}: the file changed while it was read; nothing is published. Try again",
                              Code.ABORTED)


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], *, private: Iterable[str] = PRIVATE, metadata: Mapping[str, str] | None = None,
           array_metadata: Mapping[str, Mapping[str, str]] | None = None) -> Iterator[File]:
    """The file until the statement ends. The options are as of publish_safetensors. Raises OSError, UnfitFile."""
    title = os.fspath(path)
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InvalidArgument(f"{title} is not a regular file")
        try:
            header = read_header(file)
            layout = Layout.packed({one.name: (one.dtype.name, one.shape) for one in header.tensors},
                                   {**header.metadata, **(metadata or {})},
                                   private_names((one.name for one in header.tensors), private), array_metadata)
            _ = layout.encoded  # refuses a layout that is too large
        except InvalidArgument as error:
            raise UnfitFile(f"{title}: {error}") from None
        yield File(title, file, header, layout)


def _without_waiting(path: str, flags: int) -> int:
    """A FIFO would be waited for until somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def header_of(layout: Layout) -> bytes:
    """The first bytes of a file of these arrays, as the package safetensors writes them. The arrays' bytes follow in their
    order. Raises InvalidArgument: an array cannot be in such a file."""
    header: dict[str, Any] = {_METADATA: dict(sorted(layout.metadata.items()))} if layout.metadata else {}
    at = 0
    for one in layout.arrays:
        if not one.type.safetensors or one.name == _METADATA or not one.is_contiguous:
            raise InvalidArgument(f"the array {ascii(one.name)} of {one.dtype} cannot be in one")
        header[one.name] = {"dtype": one.type.safetensors, "shape": one.shape, "data_offsets": [at, at + one.nbytes]}
        at += one.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return _LENGTH.pack(len(text)) + text


def _metadata(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidArgument(f"the header's {_METADATA} are not texts by names")
    return value


def _tensor(name: str, value: Any, data: int) -> Tensor:
    """Of the header's entry; `data`: where the file's first tensor begins."""
    def fail(why: str) -> NoReturn:
        raise InvalidArgument(f"tensor {ascii(name)[:80]}: {why}")

    check_name(name, "a tensor")
    if not isinstance(value, dict) or sorted(value) != ["data_offsets", "dtype", "shape"]:
        fail("it does not have exactly a dtype, a shape and data_offsets")
    dtype = _DTYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if dtype is None:
        fail(f"elements of the type {ascii(value['dtype'])[:40]} cannot be published")
    offsets, shape = value["data_offsets"], value["shape"]
    if not isinstance(offsets, list) or len(offsets) != 2 or any(type(one) is not int for one in offsets):
        fail("its data_offsets are not two whole numbers")
    if not isinstance(shape, list) or any(type(count) is not int for count in shape):
        fail("its shape is no list of whole numbers")
    if len(shape) > MOST_DIMENSIONS:
        fail(f"its shape has {len(shape)} dimensions, more than {MOST_DIMENSIONS}")
    for count in shape:
        if not 0 <= count <= MOST_SIZE:
            fail(f"a dimension of its shape is {count}; it is a whole number from 0 to 2^63 - 1")
    size = ArrayLayout(name, dtype.name, tuple(shape), contiguous_strides(shape, dtype.itemsize), 0).nbytes
    if not 0 <= offsets[0] <= offsets[1] or offsets[1] - offsets[0] != size:
        fail(f"its data_offsets are {offsets}, and its shape has {size} bytes")
    return Tensor(name, dtype, tuple(shape), data + offsets[0], data + offsets[1])


def _check_order(tensors: Iterable[Tensor], data: int, size: int) -> None:
    """Tensors fill the file behind its header, one after the other."""
    at, before = data, "the header"
    for one in tensors:
        if one.begin != at:
            how = "overlaps with" if one.begin < at else f"leaves {one.begin - at} bytes behind"
            raise InvalidArgument(f"tensor {one.name!r} {how} {before}")
        at, before = one.end, f"tensor {one.name!r}"
    if at != size:
        raise InvalidArgument(f"the file has {size} bytes, and its tensors end at {at}"
                              + (": it is truncated" if at > size else ""))


def _stream(file: File, base: int, memory: Any, staging: int, show: Progress | None) -> None:
    """Reads the tensors one piece after the other and copies each to its array's place."""
    total, done = sum(array.nbytes for array in file.layout.arrays), 0
    with memory.pinned(staging) as buffer:
        source = ctypes.addressof(ctypes.c_ubyte.from_buffer(buffer))
        for target, size, read in _pieces(file, buffer):
            memory.copy_in(base + target, source, size)
            done += read
            if show:
                show(done, total)


def _pieces(file: File, buffer: memoryview) -> Iterator[tuple[int, int, int]]:
    """Fills the buffer and says which part of the region that is: offset, size, and how much of it was read. Small arrays
    go together, with zeros between them."""
    start = size = read = 0
    for tensor, array in zip(file.tensors, file.layout.arrays):
        at, place = tensor.begin, array.offset
        while at < tensor.end:
            if place - start >= len(buffer):
                yield start, size, read
                start, size, read = place, 0, 0
            piece = min(tensor.end - at, len(buffer) - (place - start))
            buffer[size:place - start] = bytes(place - start - size)
            _read(file.number, buffer[place - start:place - start + piece], at, tensor.name)
            size, read = place - start + piece, read + piece
            at, place = at + piece, place + piece
    if size:
        yield start, size, read


def _read(file: int, into: memoryview, at: int, name: str) -> None:
    while into:
        count = os.preadv(file, [into], at)
        if count == 0:
            raise InvalidArgument(f"the file was truncated while it was read, in tensor {name!r}")
        into, at = into[count:], at + count


def _bar(done: int, total: int) -> None:
    filled = 40 * done // total if total else 40
    print(f"\r[{'#' * filled}{' ' * (40 - filled)}] {done >> 20} of {total >> 20} MiB", end="\n" if done == total else "",
          file=sys.stderr, flush=True)


if __name__ == "__main__":
    from ._safetensors_command import main

    sys.exit(main())
