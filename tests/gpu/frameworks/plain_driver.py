"""A program on the driver alone, by its C functions: what every machine can run, the simulated one too. Its training is
gradient descent on the host, over weights that lie on the device. GPUMEM_ACCEPTANCE_WAY: `blocks` (cuMemAlloc) or `async`
(cuMemAllocAsync). Stages: plain.py."""
import array
import ctypes
from typing import List, Tuple

import plain
import stages

OUT_OF_MEMORY = 2
NUMBERS = 4096


class Driver:
    """libcuda.so.1, as the loader finds it. What fails raises."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            stages.leave(str(error))
        self._context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self.call("cuCtxSetCurrent", self._context)

    def call(self, name: str, *arguments: object) -> None:
        if status := self.status(name, *arguments):
            raise RuntimeError(f"{name} answers {status}")

    def status(self, name: str, *arguments: object) -> int:
        return int(getattr(self._library, name)(*arguments))

    def allocate(self, size: int) -> "Tuple[int, ctypes.c_uint64]":
        """The driver's answer, and the address."""
        address = ctypes.c_uint64()
        if plain.WAY == "async":
            return self.status("cuMemAllocAsync", ctypes.byref(address), ctypes.c_size_t(size), None), address
        return self.status("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size)), address

    def free(self, address: ctypes.c_uint64) -> None:
        if plain.WAY == "async":
            self.call("cuMemFreeAsync", address, None)
            self.call("cuStreamSynchronize", None)
        else:
            self.call("cuMemFree_v2", address)

    def write(self, address: ctypes.c_uint64, numbers: "array.array[float]") -> None:
        self.call("cuMemcpyHtoD_v2", address, ctypes.c_char_p(numbers.tobytes()), ctypes.c_size_t(8 * len(numbers)))

    def read(self, address: ctypes.c_uint64, count: int) -> "array.array[float]":
        buffer = ctypes.create_string_buffer(8 * count)
        self.call("cuMemcpyDtoH_v2", buffer, address, ctypes.c_size_t(8 * count))
        numbers = array.array("d")
        numbers.frombytes(buffer.raw)
        return numbers


def train(driver: Driver) -> List[float]:
    """Steps whose memory comes and goes, in the sizes of a framework's caches."""
    status, weights = driver.allocate(8 * NUMBERS)
    if status:
        raise RuntimeError(f"the weights: {status}")
    driver.write(weights, array.array("d", [0.0] * NUMBERS))
    count = 0

    def step() -> float:
        nonlocal count
        status, batch = driver.allocate((2, 20, 4, 32)[count % 4] << 20)
        if status:
            raise RuntimeError(f"step {count}: {status}")
        driver.write(batch, array.array("d", [((i * 7919 + count) % 101) / 101 for i in range(NUMBERS)]))
        now, wanted = driver.read(weights, NUMBERS), driver.read(batch, NUMBERS)
        driver.write(weights, array.array("d", [w + 0.1 * (x - w) for w, x in zip(now, wanted)]))
        driver.free(batch)
        count += 1
        return sum((x - w) ** 2 for w, x in zip(now, wanted)) / NUMBERS

    losses = plain.train(step)
    driver.free(weights)
    return losses


def refused(driver: Driver, total: int) -> str:
    status, _ = driver.allocate(total + (2 << 20))
    if status != OUT_OF_MEMORY:
        return f"status {status}"
    status, small = driver.allocate(1 << 20)
    if status:
        return f"a small block then fails with {status}"
    driver.free(small)
    return ""


def main() -> None:
    driver = Driver()
    stages.stage("imported", version="")
    free, total, seen = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
    driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(seen), 0)
    stages.stage("context", total=total.value, seen=seen.value)
    stages.stage("trained", losses=train(driver), correct=True)
    stages.stage("refused", wrong=refused(driver, total.value))


stages.play(main)
