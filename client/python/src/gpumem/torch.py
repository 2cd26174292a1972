"""PyTorch's CUDA tensors in memory of gpumem.

    import gpumem.torch
    gpumem.torch.enable()          # before the first CUDA tensor

In place of PyTorch's caching allocator, so what is its own is not there: torch.cuda.memory_allocated and its like,
empty_cache, memory snapshots, CUDA graphs' private pools. gpumem.default_allocator(device) has statistics(),
snapshot() and trim() instead.
"""
from __future__ import annotations

from typing import Any

from . import _library, process
from .errors import FailedPrecondition

ALLOCATE = "gpumem_torch_alloc"
FREE = "gpumem_torch_free"

_TOO_LATE = ("PyTorch has its memory allocator in use already; call gpumem.torch.enable() at the program's beginning, "
             "before the first CUDA tensor and before torch.cuda.init()")
_enabled: list[Any] = []


def enable(**options: Any) -> None:
    """Has PyTorch take its CUDA memory, of every device, from gpumem.default_allocator. Again: nothing.

    options: as gpumem.configure_default; `wait` is often wanted, since PyTorch does not try again.
    Raises FailedPrecondition (too late; the process's session is open already and there are options), Unavailable
    (no broker), LibraryNotFound, ImportError (no PyTorch).
    A tensor that cannot be had raises PyTorch's RuntimeError with the broker's explanation.
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
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise FailedPrecondition(f"{_TOO_LATE} ({error})") from error
    _enabled.append(allocator)  # PyTorch keeps the functions, not the object
