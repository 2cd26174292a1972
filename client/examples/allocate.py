"""Borrows memory of the first GPU in blocks: of its own, and under cuda.core's buffers. Nothing is compiled.

    GPUMEM_RUNTIME_DIR=~/.gpumem python3 allocate.py
    GPUMEM_RUNTIME_DIR=~/.gpumem gpumem-sim run ~/.gpumem/driver python3 allocate.py    # no GPU: a simulated one
"""
import ctypes

import cuda.core
import gpumem
import gpumem.cuda_core

device = cuda.core.Device(0)
device.set_current()
stream = device.create_stream()

with gpumem.Session.connect(label="allocate.py") as session, session.open_allocator(wait=10.0) as allocator:
    # A block: an address for kernels and copies, in the order of a stream.
    with allocator.allocate(64 * gpumem.MIB, stream, tag="scratch") as block:
        print(f"{block.size >> 20} MiB at {block.address:#x}, charged to tenant {session.tenant}")

    # Freed on a stream, it serves that stream again at once, without a call to the driver.
    for _ in range(1000):
        allocator.allocate(64 * gpumem.MIB, stream).free()

    # A package that takes a memory resource gets the same memory.
    resource = gpumem.cuda_core.MemoryResource(allocator)
    with resource.allocate(gpumem.MIB, stream=stream) as buffer:
        buffer.fill(7, stream=stream)
        with cuda.core.LegacyPinnedMemoryResource().allocate(gpumem.MIB) as host:
            buffer.copy_to(host, stream=stream)
            stream.sync()
            print(f"it begins with {ctypes.string_at(int(host.handle), 4)!r}")

    try:
        allocator.allocate(allocator.limit - gpumem.MIB, stream), allocator.allocate(2 * gpumem.MIB, stream)
    except gpumem.OutOfMemory as why:
        print(f"refused: {why}")

    figures = allocator.statistics()
    print(f"{figures.allocations} allocations, {figures.growths} requests to the broker, "
          f"{figures.peak_committed >> 20} MiB borrowed at most")
