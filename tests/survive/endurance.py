"""endurance.py PROGRESS: as endurance.cc's slice, through the Python package."""

import ctypes
import os
import random
import signal
import sys

import gpumem

MOST = 16 << 20
stopping = False


def stop(*_):
    global stopping
    stopping = True


def main(progress_file):
    signal.signal(signal.SIGTERM, stop)
    progress = os.open(progress_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with gpumem.Session.connect(label="python", timeout=20) as session:
        driver = ctypes.CDLL(os.path.join(os.environ["ENDURANCE_DRIVER_FOLDER"], "libcuda.so.1"))
        with session.open_slice() as slice:
            context = ctypes.c_void_p()
            assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
            assert driver.cuCtxSetCurrent(context) == 0
            while not stopping:
                target = random.randrange(2 << 20, MOST + 1, 2 << 20)
                if target < slice.committed:
                    slice.shrink(target)
                else:
                    slice.grow(target, wait=20)
                value, size = random.randrange(256), slice.committed
                address = ctypes.c_uint64(slice.base)
                assert driver.cuMemsetD8_v2(address, ctypes.c_ubyte(value), ctypes.c_size_t(size)) == 0
                copy = (ctypes.c_ubyte * size)()
                assert driver.cuMemcpyDtoH_v2(copy, address, ctypes.c_size_t(size)) == 0
                assert bytes(copy) == bytes([value]) * size, "a byte has changed"
                os.write(progress, b".")
            slice.shrink(0)


main(sys.argv[1])
