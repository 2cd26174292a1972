"""DLPack's structs (dlpack.h, 1.1) by ctypes: arrays handed to other packages, and read from theirs, without a copy."""
from __future__ import annotations

import atexit
import ctypes
import dataclasses
import functools
from ctypes import c_char_p, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from . import _abi
from ._dtypes import Dtype, dtype_of_dlpack
from ._library import load
from .errors import InvalidArgument
from .layout import contiguous_strides

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
VERSION = (1, 1)
_NAME, _NAME_VERSIONED = b"dltensor", b"dltensor_versioned"
_READ_ONLY = 1
_MOST_DIMENSIONS = 64


class _Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device", c_int32), ("ndim", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", c_void_p), ("strides", c_void_p),
                ("byte_offset", c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("tensor", _Tensor)]


@dataclasses.dataclass(frozen=True)
class Strided:
    """Elements in memory."""

    address: int
    dtype: Dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes
    device: tuple[int, int]  # DLDeviceType, ordinal
    owner: object  # keeps the memory


_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = c_void_p, [c_size_t]
_libc.free.restype, _libc.free.argtypes = None, [c_void_p]
_api = ctypes.PyDLL(None)
_api.PyCapsule_New.restype, _api.PyCapsule_New.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
for _function, _answer in (("PyCapsule_IsValid", ctypes.c_int), ("PyCapsule_GetPointer", c_void_p)):
    getattr(_api, _function).restype, getattr(_api, _function).argtypes = _answer, [c_void_p, c_char_p]

# Exported structs by their address: the struct, and the object that keeps the memory.
_given: dict[int, tuple[_Managed | _ManagedVersioned, object]] = {}


def _deleted(address: int) -> None:
    """The consumer, in any thread, needs the memory no more."""
    if _given.pop(address, None) is not None:
        _libc.free(address)


def _dropped(capsule: int) -> None:
    """A capsule goes. One that was consumed has another name by then."""
    for name in (_NAME, _NAME_VERSIONED):
        if _api.PyCapsule_IsValid(capsule, name):
            _deleted(_api.PyCapsule_GetPointer(capsule, name))


@functools.lru_cache(maxsize=None)
def _callbacks() -> _abi.DlpackCalls:
    """The library calls these two, since a consumer may have an exception under way."""
    python = ctypes.pythonapi
    fetch, restore, ensure, release = (ctypes.cast(function, c_void_p) for function in (
        python.PyErr_Fetch, python.PyErr_Restore, python.PyGILState_Ensure, python.PyGILState_Release))
    calls = _abi.DlpackCalls(fetch, restore, ensure, release, _abi.Release(_dropped), _abi.Release(_deleted))
    load().gpumem_dlpack_configure(ctypes.byref(calls))
    # Consumers that outlive the interpreter call no Python: their structs stay.
    atexit.register(load().gpumem_dlpack_configure, None)
    return calls


def capsule_of(array: Strided, *, versioned: bool, read_only: bool) -> Any:
    """A capsule that keeps array.owner until its consumer is done. Only versioned ones say that they are read-only."""
    _callbacks()
    kind: Any = _ManagedVersioned if versioned else _Managed
    count = len(array.shape)
    header = ctypes.sizeof(kind)
    block = _libc.malloc(header + 16 * max(1, count))
    if not block:
        raise MemoryError
    managed = kind.from_address(block)
    ctypes.memset(block, 0, header)
    shape, strides = ((c_int64 * count).from_address(block + header + place * 8 * count) for place in range(2))
    shape[:], strides[:] = list(array.shape), [stride // array.dtype.itemsize for stride in array.strides]
    managed.tensor = _Tensor(array.address, *array.device, count, array.dtype.dlpack, array.dtype.bits, 1,
                             ctypes.addressof(shape), ctypes.addressof(strides), 0)
    managed.deleter = ctypes.cast(load().gpumem_dlpack_free, c_void_p).value
    if versioned:
        managed.major, managed.minor = VERSION
        managed.flags = _READ_ONLY if read_only else 0
    _given[block] = (managed, array.owner)
    return _api.PyCapsule_New(block, _NAME_VERSIONED if versioned else _NAME, ctypes.cast(load().gpumem_dlpack_drop, c_void_p))


def strided_of(capsule: object) -> Strided:
    """The array in another package's capsule. The capsule stays unconsumed and keeps the memory. Raises
    InvalidArgument."""
    for name, kind in ((_NAME_VERSIONED, _ManagedVersioned), (_NAME, _Managed)):
        if _api.PyCapsule_IsValid(id(capsule), name):
            managed: Any = kind.from_address(_api.PyCapsule_GetPointer(id(capsule), name))
            break
    else:
        raise InvalidArgument("this is no DLPack capsule, or one that was consumed")
    if kind is _ManagedVersioned and managed.major != VERSION[0]:
        raise InvalidArgument(f"a DLPack capsule of version {managed.major}.{managed.minor}; gpumem reads {VERSION[0]}.x")
    tensor = managed.tensor
    if not 0 <= tensor.ndim <= _MOST_DIMENSIONS:
        raise InvalidArgument(f"a DLPack capsule of {tensor.ndim} dimensions")
    dtype = dtype_of_dlpack(tensor.code, tensor.bits, tensor.lanes)
    shape = tuple((c_int64 * tensor.ndim).from_address(tensor.shape)) if tensor.ndim else ()
    if tensor.strides and tensor.ndim:
        strides = tuple(stride * dtype.itemsize for stride in (c_int64 * tensor.ndim).from_address(tensor.strides))
    else:
        strides = contiguous_strides(shape, dtype.itemsize)
    return Strided((tensor.data or 0) + tensor.byte_offset, dtype, shape, strides, (tensor.device_type, tensor.device),
                   capsule)

