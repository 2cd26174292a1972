"""Streams of any framework, as the handle that C knows."""
from __future__ import annotations

import operator
from typing import Any, Protocol, Union


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
