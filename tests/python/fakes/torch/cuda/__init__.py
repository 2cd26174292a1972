"""torch.cuda."""
import device

from . import _utils, memory
from .memory import (empty_cache, max_memory_allocated, memory_allocated, memory_reserved,  # noqa: F401, as in torch.cuda
                     memory_stats_as_nested_dict, reset_peak_memory_stats)

_initialized = False


def is_initialized() -> bool:
    return _initialized


def init() -> None:
    global _initialized
    device.be_there()
    _initialized = True
