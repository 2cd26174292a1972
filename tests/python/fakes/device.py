"""Driver calls on the simulated device, for the fakes of frameworks."""
import ctypes

import numpy as np
from cuda.bindings import driver as cu

from bindings import ok, use


def current_device() -> int:
    return int(ok(cu.cuCtxGetDevice()))


def be_there() -> None:
    """A context, as a framework's runtime makes one."""
    if cu.cuCtxGetDevice()[0] != cu.CUresult.CUDA_SUCCESS:
        use(0)


def write(address: int, content: np.ndarray) -> None:
    ok(cu.cuMemcpyHtoD(address, content.ctypes.data, content.nbytes))


def read(address: int, like: np.ndarray) -> np.ndarray:
    there = np.empty_like(like)
    ok(cu.cuMemcpyDtoH(there.ctypes.data, address, there.nbytes))
    return there


def call_pointer(address: int, answer: type, *takes: type, locked: bool = False):
    """A C function by its address, as compiled frameworks call one. `locked`: while they hold Python's lock."""
    return (ctypes.PYFUNCTYPE if locked else ctypes.CFUNCTYPE)(answer, *takes)(address)
