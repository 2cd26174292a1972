"""A program that knows nothing of gpumem. Says in one line what it got: total=MiB how many sockets, threads, and what follows.

program.py [filtered] [past FILE] [later] [take MIB] [hold]
filtered: under seccomp. past: libcuda.so.1 is FILE. later: waits for a line of input after cuInit. take: so much device memory, in
place of 64 MiB. hold: keeps it until the input ends. After each line of input it says what another allocation of 64 MiB answers
"""
import ctypes
import os
import subprocess
import sys
import time

tasks = sys.argv[1:]


def filter_calls() -> None:
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    allow_all = (0x06).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.byref(Program(1, allow_all)), 0, 0) == 0, ctypes.get_errno()  # PR_SET_SECCOMP


def library(name: str) -> ctypes.CDLL:
    """With REAL_PATHS by the path that `ldconfig -p` tells, without links, as container tools do."""
    if "REAL_PATHS" in os.environ:
        lines = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout.splitlines()
        name = os.path.realpath(next(line.split()[-1] for line in lines if line.split()[0] == name))
    return ctypes.CDLL(name)


def allocate(mib: int) -> int:
    address = ctypes.c_ulonglong()
    return cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20))


def nvml_total() -> int:
    nvml = library("libnvidia-ml.so.1")
    device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
    return memory[0]


if "filtered" in tasks:
    filter_calls()
if "FOR_CHILDREN" in os.environ:
    os.environ["LD_LIBRARY_PATH"] = os.environ["FOR_CHILDREN"]
if "past" in tasks:
    cuda = ctypes.CDLL(tasks[tasks.index("past") + 1])
else:
    cuda = library("libcuda.so")  # as some programs, which do not care about versions
    cuda = library("libcuda.so.1")
began = time.monotonic()
result = cuda.cuInit(0)
took = time.monotonic() - began
if "later" in tasks:
    print("started", flush=True)
    sys.stdin.readline()
total, context = ctypes.c_size_t(), ctypes.c_void_p()
if result == 0:
    assert cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    assert allocate(int(tasks[tasks.index("take") + 1]) if "take" in tasks else 64) == 0
    assert total.value == nvml_total()
sockets = sum(os.readlink(f"/proc/self/fd/{fd}").startswith("socket:") for fd in os.listdir("/proc/self/fd")
              if os.path.islink(f"/proc/self/fd/{fd}"))
# In one write, also where Python buffers nothing: two programs may have one output.
sys.stdout.write(f"init={result} total={total.value >> 20} sockets={sockets} threads={len(os.listdir('/proc/self/task'))}"
                 f" late={took > 1}\n")
sys.stdout.flush()
if "hold" in tasks:
    for _ in sys.stdin:
        print("another", allocate(64), flush=True)
