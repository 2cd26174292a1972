"""The few calls of the CUDA driver that copying to and from a region needs, by the driver that libgpumem has loaded."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import uuid
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from .errors import GpumemError, NotFound

_DEVICE_POINTER = 3  # CU_POINTER_ATTRIBUTE_DEVICE_POINTER
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_SIMULATED = b"gpumem simulated GPU"
_FUNCTIONS: dict[str, list[Any]] = {
    "cuInit": [c_uint],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
    "cuCtxGetDevice": [POINTER(c_int)],
    "cuDeviceGetCount": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetName": [c_char_p, c_int, c_int],
    "cuDeviceGetUuid": [c_char_p, c_int],
    "cuMemGetInfo_v2": [POINTER(c_size_t), POINTER(c_size_t)],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuDevicePrimaryCtxRelease_v2": [c_int],
    "cuCtxPushCurrent_v2": [c_void_p],
    "cuCtxPopCurrent_v2": [POINTER(c_void_p)],
    "cuCtxSynchronize": [],
    "cuStreamIsCapturing": [c_void_p, POINTER(c_int)],
    "cuMemHostAlloc": [POINTER(c_void_p), c_size_t, c_uint],
    "cuMemFreeHost": [c_void_p],
    "cuMemcpyHtoD_v2": [c_uint64, c_void_p, c_size_t],
    "cuMemcpyDtoH_v2": [c_void_p, c_uint64, c_size_t],
    "cuMemcpyDtoD_v2": [c_uint64, c_uint64, c_size_t],
    "cuPointerGetAttribute": [c_void_p, c_int, c_uint64],
}


@functools.lru_cache(maxsize=None)
def _load() -> ctypes.CDLL:
    """By its soname: the one that libgpumem has opened, wherever it lay."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NotFound(f"there is no CUDA driver: {error}") from error
    for name, takes in _FUNCTIONS.items():
        function = getattr(driver, name)
        function.restype, function.argtypes = c_int, takes
    _check(driver, driver.cuInit(0), "cuInit")
    return driver


def _check(driver: ctypes.CDLL, result: int, call: str) -> None:
    if result:
        name = c_char_p()
        driver.cuGetErrorName(result, ctypes.byref(name))
        raise GpumemError(f"{call}: {(name.value or b'').decode() or result}")


def _call(name: str, *arguments: Any) -> None:
    driver = _load()
    _check(driver, getattr(driver, name)(*arguments), name)


def _device(ordinal: int) -> c_int:
    device = c_int()
    _call("cuDeviceGet", ctypes.byref(device), ordinal)
    return device


@functools.lru_cache(maxsize=None)
def is_host_memory(ordinal: int) -> bool:
    """Whether the device's addresses are the process's own: of a simulated GPU they are."""
    name = ctypes.create_string_buffer(128)
    _call("cuDeviceGetName", name, len(name), _device(ordinal))
    return name.value == _SIMULATED


def device_uuid(ordinal: int) -> str:
    """As the broker writes it."""
    raw = ctypes.create_string_buffer(16)
    _call("cuDeviceGetUuid", raw, _device(ordinal))
    return f"GPU-{uuid.UUID(bytes=raw.raw)}"


def device_count() -> int:
    """Devices that this process sees."""
    count = c_int()
    _call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def current_ordinal() -> int:
    """Of the thread's current context; 0 without one."""
    device = c_int()
    driver = _load()
    return device.value if driver.cuCtxGetDevice(ctypes.byref(device)) == 0 else 0


def device_total(ordinal: int) -> int:
    """Bytes of the device; of the slice, under the drop-in driver."""
    free, whole = c_size_t(), c_size_t()
    with current(ordinal):
        _call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(whole))
    return whole.value


@contextlib.contextmanager
def current(ordinal: int) -> Iterator[None]:
    """The device's primary context is the thread's current one."""
    device, context = _device(ordinal), c_void_p()
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        _call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            _call("cuCtxPopCurrent_v2", ctypes.byref(context))
    finally:
        _call("cuDevicePrimaryCtxRelease_v2", device)


@contextlib.contextmanager
def pinned(size: int) -> Iterator[memoryview]:
    """Host memory of `size` bytes that the device copies from directly. Within `current`."""
    address = c_void_p()
    _call("cuMemHostAlloc", ctypes.byref(address), size, 0)
    try:
        yield memoryview((ctypes.c_ubyte * size).from_address(address.value or 0)).cast("B")
    finally:
        _call("cuMemFreeHost", address)


def device_address(address: int) -> int:
    """Of pinned host memory, in the thread's current context. Raises GpumemError."""
    found = c_uint64()
    _call("cuPointerGetAttribute", ctypes.byref(found), _DEVICE_POINTER, address)
    return found.value


def copy_in(address: int, source: int, size: int) -> None:
    """From host memory. Has ended when it returns. Within `current`, as the others."""
    if size:
        _call("cuMemcpyHtoD_v2", address, source, size)


def write(address: int, content: bytes) -> None:
    place = ctypes.create_string_buffer(content, len(content) or 1)
    copy_in(address, ctypes.addressof(place), len(content))


def copy_out(address: int, size: int) -> bytes:
    content = ctypes.create_string_buffer(size)
    if size:
        copy_to_host(ctypes.addressof(content), address, size)
    return content.raw


def synchronize() -> None:
    """Waits for all work in the context."""
    _call("cuCtxSynchronize")


def synchronize_unless_captured() -> None:
    """Waits for all work in the context. Raises GpumemError where that would spoil the capture of a graph. The drop-in driver
    knows all captures. Without it, those of PyTorch's current stream and of streams that the default stream waits for are
    known."""
    driver, capturing = _load(), c_int()
    by_shim, torch = getattr(driver, "gpumem_shim_captures", None), getattr(sys.modules.get("torch"), "cuda", None)
    if by_shim is not None:
        by_shim.restype = ctypes.c_bool
    if (by_shim is not None and by_shim()) or driver.cuStreamIsCapturing(None, ctypes.byref(capturing)) or capturing.value or (
            torch is not None and torch.is_initialized() and torch.is_current_stream_capturing()):
        raise GpumemError("a graph is being captured")
    synchronize()


def ordinal_of(address: int) -> int:
    """Of the device whose memory this is. Within `current`."""
    ordinal = c_int()
    _call("cuPointerGetAttribute", ctypes.byref(ordinal), _DEVICE_ORDINAL, address)
    return ordinal.value


def copy_to_host(address: int, source: int, size: int) -> None:
    """From device memory."""
    _call("cuMemcpyDtoH_v2", address, source, size)


def copy(address: int, source: int, size: int) -> None:
    """Within device memory. Has ended when it returns."""
    if size:
        _call("cuMemcpyDtoD_v2", address, source, size)
        synchronize()


copy_from_device = copy
