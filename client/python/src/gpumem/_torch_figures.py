"""torch.cuda.memory's figures, by those of gpumem.default_allocator. PyTorch refuses them with an allocator that is not
its own."""
from __future__ import annotations

from typing import Any

from . import process


def _figure(current: int, peak: int = 0, allocated: int = 0, freed: int = 0) -> dict[str, dict[str, int]]:
    """PyTorch splits figures by pools of small and large blocks, which are not here."""
    whole = {"current": current, "peak": peak, "allocated": allocated, "freed": freed}
    return {"all": whole, "small_pool": dict.fromkeys(whole, 0), "large_pool": dict.fromkeys(whole, 0)}


def nested_stats(device: int) -> dict[str, Any]:
    """As torch.cuda.memory_stats_as_nested_dict; what gpumem does not count is 0."""
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


def install(torch: Any) -> None:
    """Takes the place of what would raise, in torch.cuda.memory and in torch.cuda. The others stand on these."""
    def ordinal(device: Any) -> int:
        return int(torch.cuda._utils._get_device_index(device, optional=True))

    def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
        """The figures of gpumem.default_allocator."""
        return nested_stats(ordinal(device)) if torch.cuda.is_initialized() else {}

    def reset_peak_memory_stats(device: Any = None) -> None:
        """As gpumem.Allocator.reset_peaks."""
        process.default_allocator(ordinal(device)).reset_peaks()

    for function in memory_stats_as_nested_dict, reset_peak_memory_stats:
        setattr(torch.cuda.memory, function.__name__, function)
        setattr(torch.cuda, function.__name__, function)
