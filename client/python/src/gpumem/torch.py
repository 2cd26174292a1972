"""PyTorch's CUDA tensors in memory of gpumem.

    import gpumem.torch
    gpumem.torch.enable()          # before the first CUDA tensor

    weights = gpumem.torch.tensors(session.map_region("weights"))      # without a copy; needs no enable()

In place of PyTorch's caching allocator. docs/pytorch.md says what works, what is refused and what is lost. For figures
of its own, gpumem.default_allocator(device) has statistics(), snapshot() and trim().
"""
from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from . import _library, _torch_figures, process
from .arrays import Array
from .errors import FailedPrecondition, InvalidArgument
from .region import Region

ALLOCATE = "gpumem_torch_alloc"
FREE = "gpumem_torch_free"
# By the setters of PyTorch's CUDAPluggableAllocator.
CALLBACKS = {
    "set_record_stream_fn": "gpumem_torch_record_stream",
    "set_reset_fn": "gpumem_torch_reset",
    "set_begin_allocate_to_pool": "gpumem_torch_begin_allocate_to_pool",  # refuses
}

_TOO_LATE = ("PyTorch has its memory allocator in use already; call gpumem.torch.enable() at the program's beginning, "
             "before the first CUDA tensor and before torch.cuda.init()")
_enabled: list[Any] = []


def _set_callbacks(torch: Any, allocator: Any) -> None:
    """What PyTorch would otherwise leave out without a word."""
    library = _library.load()
    for setter, function in CALLBACKS.items():
        if not hasattr(allocator, setter):
            raise FailedPrecondition(f"PyTorch {torch.__version__} cannot be used: its CUDAPluggableAllocator has no "
                                     f"{setter}; install a newer one")
        getattr(allocator, setter)(ctypes.cast(getattr(library, function), ctypes.c_void_p).value)


def enable(**options: Any) -> None:
    """Has PyTorch take its CUDA memory, of every device, from gpumem.default_allocator. Again: nothing.

    options: as gpumem.configure_default; `wait` is often wanted, since PyTorch does not try again.
    Raises FailedPrecondition (too late; a PyTorch that is too old; the process's session is open already and there
    are options), Unavailable
    (no broker), LibraryNotFound, ImportError (no PyTorch).
    A tensor that cannot be had raises torch.OutOfMemoryError with the broker's explanation.
    """
    import torch

    if _enabled:
        return
    if torch.cuda.is_initialized():
        raise FailedPrecondition(_TOO_LATE)
    if options:
        process.configure_default(**options)
    process.default_session().ping()  # what is wrong with the broker is said here, not by the first tensor
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_library.path(), ALLOCATE, FREE)
    _set_callbacks(torch, allocator.allocator())
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise FailedPrecondition(f"{_TOO_LATE} ({error})") from error
    _torch_figures.install(torch)
    _enabled.append(allocator)  # PyTorch keeps the functions, not the object


def tensors(region: Region | Mapping[str, Array], **options: Any) -> dict[str, Any]:
    """The region's arrays as tensors, by name, without a copy. Each keeps the region mapped. PyTorch knows no read-only
    tensors: writing to one faults, so clone what is written to, or name it in `private`. For a module:
    module.load_state_dict(tensors, assign=True), within torch.no_grad().

    options: of Region.arrays.
    Raises InvalidArgument (a type of elements that PyTorch does not take), ImportError, others as Region.arrays.
    """
    import torch

    def tensor(array: Array) -> Any:
        try:
            return torch.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidArgument(f"PyTorch takes no array {array.name!r} of {array.dtype} {array.shape}: "
                                  f"{error}") from error

    arrays = region.arrays(**options) if isinstance(region, Region) else region
    return {name: tensor(array) for name, array in arrays.items()}
