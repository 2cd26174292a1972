"""As much of CuPy as gpumem and its example use, on the simulated device: the CUDA runtime, which CuPy itself stands
on, refuses it (test_real_cupy.py puts a stand-in there, and takes long to install). Names, signatures and who keeps what alive are CuPy's; the GPU acceptance runs the real one."""
from __future__ import annotations

import numpy as np

import device

from . import cuda


class ndarray:
    def __init__(self, content: np.ndarray):
        self._like = content
        self.data = cuda.alloc(content.nbytes)
        self.nbytes = content.nbytes
        if content.nbytes:
            device.write(self.data.ptr, content)

    def get(self) -> np.ndarray:
        return device.read(self.data.ptr, self._like)

    def sum(self) -> int:
        return int(self.get().sum())


def arange(stop: int, dtype: type = np.int64) -> ndarray:
    return ndarray(np.arange(stop, dtype=dtype))
