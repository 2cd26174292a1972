"""Checks of arguments before ctypes, which would truncate numbers silently, and the handles of any framework's streams."""
from __future__ import annotations

import math
import operator
from typing import Any, Protocol, SupportsIndex, Union

from . import _abi
from .errors import InvalidArgument

_MOST_BYTES = 2**64 - 1
_MOST_MILLISECONDS = 2**63 - 1


def size_of(value: SupportsIndex, what: str) -> int:
    """A number of bytes. Raises InvalidArgument, and TypeError for what is no whole number."""
    if type(value) is int and 0 <= value <= _MOST_BYTES:  # first, since it is asked for every block
        return value
    number = operator.index(value)
    if not 0 <= number <= _MOST_BYTES:
        raise InvalidArgument(f"{what} is {number}; it is a number of bytes, from 0 to 2^64 - 1")
    return number


def milliseconds_of(seconds: float, what: str) -> int:
    """Of a time in seconds, rounded up, so that a little is not nothing. Raises InvalidArgument."""
    if not 0 <= seconds * 1000 < _MOST_MILLISECONDS:  # refuses not-a-number, too
        raise InvalidArgument(f"{what} is {seconds}; it is a time in seconds, from 0 on")
    return math.ceil(seconds * 1000)


def wait_ms_of(seconds: float | None) -> int:
    """For C, of a wait for memory; None: as long as the environment's GPUMEM_WAIT says. Raises InvalidArgument."""
    return 0 if seconds is None else milliseconds_of(seconds, "wait") or _abi.AT_ONCE


def encoded(value: str | None, what: str) -> bytes | None:
    """For C. Raises InvalidArgument."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} is {ascii(value)[:40]}; it is text")
    if "\0" in value:
        raise InvalidArgument(f"{what} has a zero byte within")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what} is {ascii(value)[:40]}, which cannot be written as UTF-8") from None


class CudaStream(Protocol):
    """An object that tells its stream: (version, handle). cuda.core, CuPy 14 and PyTorch 2.8 have such streams."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


# A handle, an object of a framework, or None for the legacy default stream.
StreamLike = Union[int, CudaStream, Any, None]

# Where streams without that protocol keep their handle: PyTorch, CuPy, numba-cuda.
_MEMBERS = ("cuda_stream", "ptr", "handle")


def handle_of(stream: StreamLike) -> int:
    """The CUstream in value. Raises TypeError for what is no stream."""
    if type(stream) is int and 0 <= stream < 2**64:  # first, since it is asked for every block
        return stream
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for member in _MEMBERS:
        if hasattr(stream, member):
            return int(getattr(stream, member))
    try:
        number = operator.index(stream)
    except TypeError:
        raise TypeError(f"{stream!r} is no stream: pass a CUstream's value, an object with __cuda_stream__, or None "
                        "for the legacy default stream") from None
    if not 0 <= number < 2**64:
        raise TypeError(f"{number} is no stream: a CUstream's value lies from 0 to 2^64 - 1")
    return number
