"""PyTorch's CUDA tensors in memory of gpumem.

    import gpumem.torch
    gpumem.torch.enable()          # before the first CUDA tensor

    with gpumem.torch.publish_module(session, "weights", module):       # one process; needs no enable()
        ...
    gpumem.torch.load_module(session.map_region("weights"), module)     # others: no copy, one charge

In place of PyTorch's caching allocator. docs/python.md says what works, what is refused and what is lost. For figures
of its own, gpumem.default_allocator(device) has statistics(), snapshot() and trim().
"""
from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from . import _library, process
from ._framework import Kind, arrays_of, matching, with_private
from .arrays import Array
from .errors import FailedPrecondition, InvalidArgument
from .publish import Publication, publish_arrays
from .region import Region
from .session import Session

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


def _figure(current: int, peak: int = 0, allocated: int = 0, freed: int = 0) -> dict[str, dict[str, int]]:
    """PyTorch splits figures by pools of small and large blocks, which are not here."""
    whole = {"current": current, "peak": peak, "allocated": allocated, "freed": freed}
    return {"all": whole, "small_pool": dict.fromkeys(whole, 0), "large_pool": dict.fromkeys(whole, 0)}


def _nested_stats(device: int) -> dict[str, Any]:
    """As torch.cuda.memory_stats_as_nested_dict, by the figures of gpumem.default_allocator; what gpumem does not count is 0."""
    allocator = process.default_allocator(device)
    now, blocks = allocator.statistics(), sum(one.in_use for one in allocator.size_classes())
    count = _figure(blocks, 0, now.allocations, now.allocations - blocks)
    unknown = _figure(0)
    return {
        "allocated_bytes": _figure(now.placed, max(now.peak_in_use, now.placed)),
        "active_bytes": _figure(now.placed, max(now.peak_in_use, now.placed)),
        "requested_bytes": _figure(now.in_use),
        "reserved_bytes": _figure(now.committed, now.peak_committed),
        "inactive_split_bytes": unknown, "allocation": count, "active": count, "segment": unknown,
        "inactive_split": unknown, "oversize_allocations": unknown["all"], "oversize_segments": unknown["all"],
        "num_alloc_retries": 0, "num_ooms": now.refused, "num_sync_all_streams": 0, "num_device_alloc": now.growths,
        "num_device_free": now.given_back, "max_split_size": -1,
    }


def _install_figures(torch: Any) -> None:
    """Replaces what would raise, in torch.cuda.memory and in torch.cuda: PyTorch has figures of its own allocator alone. The
    other functions use these."""
    def ordinal(device: Any) -> int:
        return int(torch.cuda._utils._get_device_index(device, optional=True))

    def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
        """The figures of gpumem.default_allocator."""
        return _nested_stats(ordinal(device)) if torch.cuda.is_initialized() else {}

    def reset_peak_memory_stats(device: Any = None) -> None:
        """As gpumem.Allocator.reset_peaks."""
        process.default_allocator(ordinal(device)).reset_peaks()

    for function in memory_stats_as_nested_dict, reset_peak_memory_stats:
        setattr(torch.cuda.memory, function.__name__, function)
        setattr(torch.cuda, function.__name__, function)


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
    _install_figures(torch)
    _enabled.append(allocator)  # PyTorch keeps the functions, not the object


def tensors(region: Region | Mapping[str, Array], **options: Any) -> dict[str, Any]:
    """The region's arrays as tensors, by name, without a copy. Each keeps the region mapped. PyTorch knows no read-only
    tensors: writing to one faults, so clone what is written to, or name it in `private`.

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

    return {name: tensor(array) for name, array in arrays_of(region, options).items()}


def publish_module(session: Session, name: str, module: Any, **options: Any) -> Publication:
    """Publishes the parameters and the buffers of a module, by their names, for load_module. Buffers are private, also
    those that its state_dict leaves out: modules write to them while they are used. A tensor of several names is
    published under its first.

    options: of gpumem.publish_arrays; `private` is instead of the buffers and gpumem.arrays.PRIVATE.
    Raises as gpumem.publish_arrays.
    """
    written = [name for name, _ in module.named_buffers()]
    return publish_arrays(session, name, _state(module), **with_private(options, written))


def load_module(region: Region | Mapping[str, Array], module: Any, **options: Any) -> None:
    """Has the parameters and the buffers of a module be those of a region, without a copy but for the private ones. The
    module may be of the device `meta`: it takes no memory before. Names that share a tensor go on sharing one. It is on
    the region's device then. Parameters that are read-only require no gradient, so that optimisers pass them over.

    A buffer that the state_dict leaves out is as it was if the region does not have it, as one of a file does not.

    options: of Region.arrays.
    Raises StaleLayout (the region's arrays are not this module's; the words say which; the module is as before), others
    as tensors.
    """
    import torch

    found, saved = arrays_of(region, options), module.state_dict().keys()
    wanted: dict[str, Kind] = {name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
                               for name, tensor in _state(module).items()
                               if name in found or name in saved or tensor.is_meta}
    arrays = matching(wanted, found)
    loaded = tensors(arrays)
    made: dict[int, Any] = {id(buffer): loaded.get(name, buffer) for name, buffer in module.named_buffers()}
    for name, parameter in module.named_parameters():
        made[id(parameter)] = torch.nn.Parameter(
            loaded[name], requires_grad=parameter.requires_grad and not arrays[name].read_only)
    for part in module.modules():
        for listed in (part.named_parameters, part.named_buffers):
            for name, before in list(listed(recurse=False, remove_duplicate=False)):
                setattr(part, name, made[id(before)])


def _state(module: Any) -> dict[str, Any]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
