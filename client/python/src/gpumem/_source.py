"""Arrays of any package, as they are read when they are published."""
from __future__ import annotations

import ctypes
import sys
from typing import Any

from . import _dlpack
from ._dlpack import Strided
from ._dtypes import DTYPES, Dtype, dtype_of, dtype_of_typestr
from .errors import InvalidArgument
from .layout import check_name, contiguous_strides

HOST = (_dlpack.CPU, 0)
# Of the buffer protocol, by their kind; the size tells the rest.
_KINDS = {"?": "b", **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("cBHILQN", "u"), **dict.fromkeys("efd", "f")}


def source_of(name: str, array: Any) -> Strided:
    """Where the elements of `array` lie, in C's order without gaps. Asked in this order: the array interfaces, DLPack,
    `numpy()` (tensors and variables of TensorFlow and Keras), the buffer protocol. Raises InvalidArgument with the
    name."""
    check_name(name)
    try:
        found = _found(_settled(array))
    except MemoryError:
        raise
    except Exception as error:  # each package has errors of its own
        raise InvalidArgument(f"array {name!r} cannot be published: {error}") from error
    if not found.address and 0 not in found.shape:
        raise InvalidArgument(f"array {name!r} cannot be published: its address is 0")
    if 0 not in found.shape and any(
            count > 1 and stride != wanted for count, stride, wanted in
            zip(found.shape, found.strides, contiguous_strides(found.shape, found.dtype.itemsize))):
        raise InvalidArgument(f"array {name!r} cannot be published: it is not in C's order without gaps; copy it so before")
    return found


def is_on_host(source: Strided) -> bool:
    return source.device[0] in (_dlpack.CPU, _dlpack.CUDA_HOST)


def _settled(array: Any) -> Any:
    """PyTorch's tensors may be conjugated or negated only when somebody reads them through PyTorch, and remember how they were
    made."""
    for step in ("detach", "resolve_conj", "resolve_neg"):
        array = getattr(array, step)() if callable(getattr(array, step, None)) else array
    return array


def _interface(array: Any, name: str) -> dict[str, Any] | None:
    """The description in an array interface; None: there is none, or it has no name for these elements (PyTorch's
    float8)."""
    try:
        described = getattr(array, name, None)
    except (KeyError, RuntimeError, TypeError):
        return None
    return described if isinstance(described, dict) and isinstance(described.get("data"), tuple) else None


def _found(array: Any) -> Strided:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.generic):
        array = numpy.asarray(array)  # a scalar's own interface points to memory that is gone
    for interface, device in (("__array_interface__", HOST), ("__cuda_array_interface__", (_dlpack.CUDA, 0))):
        described = _interface(array, interface)
        if described is not None:
            return _described(array, described, interface, device)
    if hasattr(array, "__dlpack__"):
        _check_dtype(array)
        return _dlpack.strided_of(array.__dlpack__())
    if callable(getattr(array, "numpy", None)):
        return _found(array.numpy())
    return _buffer(memoryview(array))


def _described(array: Any, described: dict[str, Any], interface: str, device: tuple[int, int]) -> Strided:
    shape, dtype = tuple(described["shape"]), _dtype(array, described["typestr"])
    usual = contiguous_strides(shape, dtype.itemsize)
    if tuple(described.get("strides") or usual) != usual and hasattr(array, "copy"):
        array = array.copy(order="C")
        described = getattr(array, interface)
    return Strided(described["data"][0], dtype, shape, tuple(described.get("strides") or usual), device, array)


def _dtype(array: Any, typestr: str) -> Dtype:
    """ml_dtypes' types, and PyTorch's, have no name of their own in the interfaces."""
    name = str(getattr(array, "dtype", "")).removeprefix("torch.")
    return dtype_of(name) if name in DTYPES else dtype_of_typestr(typestr)


def _check_dtype(array: Any) -> None:
    """Before `__dlpack__` is called: TensorFlow ends the process when it is asked for a tensor of texts."""
    dtype = getattr(array, "dtype", None)
    if dtype is not None:  # NumPy's and TensorFlow's types have a name, PyTorch's are written as one
        name = getattr(dtype, "name", dtype)
        dtype_of(str(name).removeprefix("torch."))


def _buffer(view: memoryview) -> Strided:
    if not view.c_contiguous:
        raise InvalidArgument("it is not in C's order")
    kind = _KINDS.get(view.format.lstrip("@=<"))
    if kind is None:
        raise InvalidArgument(f"a buffer of the format {view.format!r}")
    flat, shape = view.cast("B") if view.nbytes else memoryview(b""), tuple(view.shape or ())
    kept = (ctypes.c_ubyte * len(flat)).from_buffer_copy(flat) if flat.readonly else (
        ctypes.c_ubyte * len(flat)).from_buffer(flat)
    return Strided(ctypes.addressof(kept), dtype_of_typestr(f"<{kind}{view.itemsize}"), shape,
                   contiguous_strides(shape, view.itemsize), HOST, kept)
