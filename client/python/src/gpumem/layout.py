"""The contents of a region: named arrays, and texts about them all and about each. The layout lies in the region's last
bytes, behind the arrays.

    layout = gpumem.layout.Layout.packed({"weight": ("float32", (1024, 1024)), "bias": ("float32", (1024,))})
    layout.encoded, layout.digest       # bytes, and 32 bytes for Slice.publish

The bytes are a head of 16 (MAGIC, the version and the length of the rest, 32 bits little-endian each) and JSON in UTF-8,
written in one way only: keys sorted, no spaces. One layout has one encoding, so its digest tells whether it changed. A layout
without texts about single arrays is of version 1, as it always was.
"""
from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import operator
import struct
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from ._dtypes import Dtype, dtype_of
from .errors import InvalidArgument

MAGIC = b"gpumemLA"
VERSION = 1
VERSION_OF_TEXTS = 2  # an array at least has metadata of its own
ALIGNMENT = 256  # bytes; of the arrays that `packed` places
MOST_ARRAYS = 1 << 17
MOST_BYTES = 1 << 25
MOST_NAME_BYTES = 512
MOST_DIMENSIONS = 32
_HEAD = struct.Struct("<8sII")
MOST_SIZE = 2**63 - 1
_MOST_DIGITS = 19
_KEYS = {"dtype", "name", "offset", "private", "shape", "strides"}
# Invisible, or not writable as UTF-8: control and format characters, surrogates, line and paragraph separators.
_UNFIT = ("Cc", "Cf", "Cs", "Zl", "Zp")


def aligned(size: int) -> int:
    """Rounded up to ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def check_name(name: object, what: str = "an array") -> str:
    """Raises InvalidArgument unless `name` is text of 1 to 512 bytes that people can see."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"the name of {what} is {str(name)[:40]!r}; it is text, and not empty")
    plain = name.isascii() and name.isprintable()  # first, since a model has many names
    if not plain and any(unicodedata.category(character) in _UNFIT for character in name):
        raise InvalidArgument(f"the name of {what}, {_shown(name)}, has characters that nobody sees")
    if len(name.encode()) > MOST_NAME_BYTES:
        raise InvalidArgument(f"the name of {what}, {_shown(name)}, has more than {MOST_NAME_BYTES} bytes")
    return name


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 80 else name[:77] + "...")


@dataclasses.dataclass(frozen=True)
class ArrayLayout:
    """Where an array lies in a region. Raises InvalidArgument, with the array's name, when it is made of what is no
    array.

    Its elements do not overlap: strides are multiples of the element's size, none is negative.
    """

    name: str
    dtype: str  # as NumPy's: float32, bfloat16
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes
    offset: int  # bytes, from the region's first
    private: bool = False  # readers get a copy of their own, by default
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        try:
            self._check()
        except InvalidArgument as error:
            raise InvalidArgument(f"array {_shown(self.name)}: {error}") from None

    @property
    def itemsize(self) -> int:
        return self.type.itemsize

    @property
    def type(self) -> Dtype:
        return dtype_of(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.itemsize

    @property
    def span(self) -> int:
        """Bytes from its first element's first to its last element's last; nbytes, unless there are gaps."""
        if 0 in self.shape:
            return 0
        return sum((count - 1) * stride for count, stride in zip(self.shape, self.strides)) + self.itemsize

    @property
    def end(self) -> int:
        """Offset of the first byte behind it."""
        return self.offset + self.span

    @property
    def is_contiguous(self) -> bool:
        """In C's order, without gaps."""
        usual = contiguous_strides(self.shape, self.itemsize)
        return 0 in self.shape or all(count == 1 or stride == wanted
                                      for count, stride, wanted in zip(self.shape, self.strides, usual))

    @property
    def digest(self) -> bytes:
        """32 bytes, SHA-256 of what a reader's code was made for: name, type, shape and strides, wherever it lies and
        whatever its metadata."""
        text = json.dumps([self.name, self.dtype, self.shape, self.strides], ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).digest()

    def _check(self) -> None:
        itemsize = dtype_of(self.dtype).itemsize
        if not isinstance(self.private, bool):
            raise InvalidArgument(f"`private` is {self.private!r}; it is true or false")
        _check_numbers(self.shape, "a dimension of its shape")
        _check_numbers(self.strides, "a stride")
        _check_numbers((self.offset,), "its offset")
        if len(self.shape) > MOST_DIMENSIONS or len(self.shape) != len(self.strides):
            raise InvalidArgument(f"{len(self.shape)} dimensions and {len(self.strides)} strides; there are as many "
                                  f"strides as dimensions, {MOST_DIMENSIONS} at most")
        if any(value % itemsize for value in (self.offset, *self.strides)):
            raise InvalidArgument(f"its offset and strides are multiples of {itemsize}, the size of a {self.dtype}")
        if math.prod(max(1, count) for count in self.shape) * itemsize > MOST_SIZE or self.end > MOST_SIZE:
            raise InvalidArgument("it has more than 2^63 - 1 bytes, or ends behind them")
        _check_texts(self.metadata)
        if 0 not in self.shape:
            self._check_overlap(itemsize)

    def _check_overlap(self, itemsize: int) -> None:
        reach = itemsize
        for stride, count in sorted((stride, count) for count, stride in zip(self.shape, self.strides) if count > 1):
            if stride < reach:
                raise InvalidArgument(f"its elements overlap: a stride of {stride} bytes steps over {reach}")
            reach = stride * (count - 1) + reach


def _check_numbers(values: object, what: str) -> None:
    if not isinstance(values, tuple):
        raise InvalidArgument(f"{what} cannot be had from {str(values)[:40]}")
    for value in values:
        if type(value) is not int or not 0 <= value <= MOST_SIZE:
            shown = hex(value) if type(value) is int and value.bit_length() > 256 else str(value)  # which has a most
            raise InvalidArgument(f"{what} is {shown[:40]}; it is a whole number from 0 to 2^63 - 1")


def _check_texts(metadata: object) -> None:
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"its metadata is {ascii(metadata)[:40]}; it is texts by names")
    for key, value in metadata.items():
        check_name(key, "a text of the metadata")
        if not isinstance(value, str) or not _is_unicode(value):
            raise InvalidArgument(f"the metadata's {_shown(key)} is no text")


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Bytes, in C's order."""
    strides: list[int] = []
    for count in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(1, count)
    return tuple(reversed(strides))


@dataclasses.dataclass(frozen=True)
class Layout:
    """The arrays of a region, none over another, by names that differ. Raises InvalidArgument when it is made of
    others."""

    arrays: tuple[ArrayLayout, ...]
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.arrays) > MOST_ARRAYS:
            raise InvalidArgument(f"{len(self.arrays)} arrays; a region has {MOST_ARRAYS} at most")
        names: set[str] = set()
        for array in self.arrays:
            if array.name in names:
                raise InvalidArgument(f"two arrays are called {_shown(array.name)}")
            names.add(array.name)
        in_order = sorted((array for array in self.arrays if array.span), key=lambda array: array.offset)
        for before, after in zip(in_order, in_order[1:]):
            if after.offset < before.end:
                raise InvalidArgument(f"arrays {_shown(before.name)} and {_shown(after.name)} overlap: the one ends at byte "
                                      f"{before.end}, the other begins at {after.offset}")
        _check_texts(self.metadata)

    @classmethod
    def packed(cls, arrays: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str] | None = None,
               private: Iterable[str] = (), array_metadata: Mapping[str, Mapping[str, str]] | None = None) -> Layout:
        """Arrays in C's order, one after the other, each at a multiple of ALIGNMENT. `arrays`: the type of the elements
        and the shape, by name. `private`: names. `array_metadata`: texts, by the names of arrays. Raises
        InvalidArgument."""
        placed, offset, own, texts = [], 0, set(private), _texts_of_arrays(arrays, array_metadata)
        for name, (dtype, shape) in arrays.items():
            counts = tuple(operator.index(count) for count in shape)
            _check_numbers(counts[:MOST_DIMENSIONS + 1], "a dimension of its shape")
            if len(counts) > MOST_DIMENSIONS:
                raise InvalidArgument(f"array {name!r} has {len(counts)} dimensions, more than {MOST_DIMENSIONS}")
            strides = contiguous_strides(counts, dtype_of(dtype).itemsize)
            placed.append(ArrayLayout(name, dtype, counts, strides, offset, name in own, texts.get(name, {})))
            offset = aligned(placed[-1].end)
        return cls(tuple(placed), dict(metadata or {}))

    @property
    def end(self) -> int:
        """Offset of the first byte behind all arrays."""
        return max((array.end for array in self.arrays), default=0)

    @functools.cached_property
    def encoded(self) -> bytes:
        """Raises InvalidArgument: over 32 MiB."""
        arrays = [{"dtype": array.dtype, "name": array.name, "offset": array.offset, "private": array.private,
                   "shape": array.shape, "strides": array.strides,
                   **({"metadata": dict(array.metadata)} if array.metadata else {})} for array in self.arrays]
        text = json.dumps({"arrays": arrays, "metadata": dict(self.metadata)}, ensure_ascii=False, sort_keys=True,
                          separators=(",", ":")).encode()
        if _HEAD.size + len(text) > MOST_BYTES:
            raise InvalidArgument(f"this layout has {_HEAD.size + len(text)} bytes; it has {MOST_BYTES} at most")
        version = VERSION_OF_TEXTS if any(array.metadata for array in self.arrays) else VERSION
        return _HEAD.pack(MAGIC, version, len(text)) + text

    @property
    def encoded_at(self) -> int:
        """Offset of the encoding in a region of these arrays."""
        return aligned(self.end)

    @property
    def size(self) -> int:
        """Bytes of a region of these arrays: the encoding is behind them."""
        return self.encoded_at + len(self.encoded)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the encoding."""
        return hashlib.sha256(self.encoded).digest()

    @classmethod
    def decode(cls, encoded: bytes, room: int | None = None) -> Layout:
        """From what `encoded` was. `room`: bytes of the region in front of the layout, in which all arrays must lie.
        Raises InvalidArgument for everything else, with the array's name where it is one."""
        layout = cls(*_parts(_json_of(encoded)))
        if layout.encoded != encoded:
            raise InvalidArgument("this layout is not written in the one way that it can be")
        for array in layout.arrays:
            if room is not None and array.end > room:
                raise InvalidArgument(f"array {_shown(array.name)} ends at byte {array.end}; the region has {room} "
                                      "in front of its layout")
        return layout


def _texts_of_arrays(arrays: Iterable[str], metadata: object) -> dict[str, dict[str, str]]:
    """A copy. Whether they are texts, the array's layout says."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"`array_metadata` is {ascii(metadata)[:40]}; it is texts by the names of arrays")
    for name in metadata.keys() - set(arrays):
        raise InvalidArgument(f"`array_metadata` has texts about {_shown(str(name))}, and no array has that name")
    return {name: dict(texts) if isinstance(texts, Mapping) else texts for name, texts in metadata.items()}


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _json_of(encoded: bytes) -> Any:
    if not _HEAD.size <= len(encoded) <= MOST_BYTES:
        raise InvalidArgument(f"a layout has {_HEAD.size} to {MOST_BYTES} bytes, not {len(encoded)}")
    magic, version, length = _HEAD.unpack_from(encoded)
    if magic != MAGIC:
        raise InvalidArgument("this is no layout of arrays: it begins otherwise")
    if version not in (VERSION, VERSION_OF_TEXTS):
        raise InvalidArgument(f"this layout is of version {version}; this gpumem knows {VERSION} and {VERSION_OF_TEXTS}")
    if length != len(encoded) - _HEAD.size:
        raise InvalidArgument(f"a layout whose head speaks of {length} bytes has {len(encoded) - _HEAD.size}")
    return strict_json(encoded[_HEAD.size:], "layout")


def _parts(value: Any) -> tuple[tuple[ArrayLayout, ...], dict[str, str]]:
    if not isinstance(value, dict) or sorted(value) != ["arrays", "metadata"]:
        raise InvalidArgument("a layout has arrays and metadata, and nothing else")
    arrays, metadata = value["arrays"], value["metadata"]
    if not isinstance(arrays, list) or not isinstance(metadata, dict):
        raise InvalidArgument("a layout has a list of arrays, and metadata by names")
    return tuple(_array(number, one) for number, one in enumerate(arrays)), metadata


def _array(number: int, value: Any) -> ArrayLayout:
    if not isinstance(value, dict) or set(value) - {"metadata"} != _KEYS:
        raise InvalidArgument(f"array {number} of the layout does not have exactly {', '.join(sorted(_KEYS))}, and perhaps "
                              "metadata")
    shape, strides = (tuple(part) if isinstance(part, list) else part for part in (value["shape"], value["strides"]))
    return ArrayLayout(value["name"], value["dtype"], shape, strides, value["offset"], value["private"],
                       value.get("metadata", {}))


def strict_json(encoded: bytes, what: str) -> Any:
    """The value of a text of JSON that others wrote. Raises InvalidArgument also for what Python's reader takes: numbers
    with fractions or of more than 19 digits, NaN, keys that come twice, and texts that are nested too deeply to read."""
    def fail(why: str) -> NoReturn:
        raise InvalidArgument(f"this {what} {why}")

    def whole(digits: str) -> int:
        return int(digits) if len(digits.lstrip("-")) <= _MOST_DIGITS else fail("has a number that is too large")

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                fail(f"says {_shown(key)} twice")
            found[key] = value
        return found

    def fraction(digits: str) -> NoReturn:
        fail(f"has the number {digits[:40]}, which is not whole")

    try:
        return json.loads(encoded.decode(), parse_int=whole, parse_float=fraction, parse_constant=fraction,
                          object_pairs_hook=members)
    except RecursionError:
        fail("is nested too deeply")
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        fail(f"is no JSON in UTF-8: {str(error)[:80]}")
