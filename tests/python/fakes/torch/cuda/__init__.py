"""torch.cuda."""
import device

from . import memory

_initialized = False


def is_initialized() -> bool:
    return _initialized


def init() -> None:
    global _initialized
    device.be_there()
    _initialized = True
