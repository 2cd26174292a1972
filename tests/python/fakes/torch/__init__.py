"""As much of PyTorch as gpumem and its example use, on the simulated device: the CUDA runtime, which PyTorch itself
stands on, refuses a stand-in. Names, signatures and what raises when are PyTorch's; the GPU acceptance runs the real
one."""
from __future__ import annotations

import numpy as np

import device

from . import cuda

__version__ = "2.15.0"


class Tensor:
    def __init__(self, content: np.ndarray):
        self._like = content
        self._pointer = cuda.memory.raw_alloc(content.nbytes)
        device.write(self._pointer, content)

    def data_ptr(self) -> int:
        return self._pointer

    def cpu(self) -> np.ndarray:
        return device.read(self._pointer, self._like)

    def record_stream(self, stream: int) -> None:
        """PyTorch takes a torch.cuda.Stream; here it is the CUstream's value."""
        cuda.memory.record_stream(self._pointer, stream)

    def sum(self) -> np.int64:
        return self.cpu().sum()

    def __del__(self) -> None:
        if hasattr(self, "_pointer"):
            cuda.memory.raw_delete(self._pointer, self._like.nbytes)


def arange(stop: int, device: str) -> Tensor:
    assert device == "cuda"
    return Tensor(np.arange(stop))


def from_dlpack(exporter: object) -> np.ndarray:
    """PyTorch's has this shape since 2.9: it asks for DLPack 1.0, and an array of the CPU stays there."""
    assert exporter.__dlpack_device__() == (1, 0)
    if exporter.dtype.startswith("float8_e8m0"):
        raise BufferError("Unsupported Float8 type")
    return np.from_dlpack(exporter)
