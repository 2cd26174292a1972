"""CuPy's arrays in memory borrowed from gpumemd.

    GPUMEM_RUNTIME_DIR=~/.gpumem python3 cupy_allocate.py
"""
import cupy
import gpumem
import gpumem.cupy

with gpumem.Session.connect(label="cupy_allocate.py") as session:
    allocator = session.open_allocator(wait=10.0)  # may wait ten seconds for memory that others hold
    cupy.cuda.set_allocator(gpumem.cupy.allocator(allocator))

    numbers = cupy.arange(1 << 20)
    print(f"the sum of {numbers.nbytes >> 20} MiB is {int(numbers.sum())}")
    for block in allocator.snapshot():
        print(f"{block.bytes} bytes at {block.address:#x}, allocated {block.age:.0f} s ago")

    del numbers
    cupy.cuda.get_current_stream().synchronize()
    cupy.cuda.set_allocator(None)
    allocator.close()  # everything goes back
