"""As much of PyTorch as gpumem and its example use, on the simulated device: the CUDA runtime, which PyTorch itself
stands on, refuses a stand-in. Names, signatures and what raises when are PyTorch's; the GPU acceptance runs the real
one."""
from __future__ import annotations

import numpy as np

import device

from . import cuda


class Tensor:
    def __init__(self, content: np.ndarray):
        self._like = content
        self._pointer = cuda.memory.raw_alloc(content.nbytes)
        device.write(self._pointer, content)

    def data_ptr(self) -> int:
        return self._pointer

    def cpu(self) -> np.ndarray:
        return device.read(self._pointer, self._like)

    def sum(self) -> np.int64:
        return self.cpu().sum()

    def __del__(self) -> None:
        if hasattr(self, "_pointer"):
            cuda.memory.raw_delete(self._pointer, self._like.nbytes)


def arange(stop: int, device: str) -> Tensor:
    assert device == "cuda"
    return Tensor(np.arange(stop))
