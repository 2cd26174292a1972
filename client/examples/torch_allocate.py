"""PyTorch's CUDA tensors in memory borrowed from gpumemd.

    GPUMEM_RUNTIME_DIR=~/.gpumem python3 torch_allocate.py
"""
import gpumem
import gpumem.torch

gpumem.torch.enable(label="torch_allocate.py", wait=10.0)  # before the first CUDA tensor

import torch  # noqa: E402

numbers = torch.arange(1 << 20, device="cuda")
print(f"the sum of {1 << 20} numbers is {numbers.sum().item()}")

allocator = gpumem.default_allocator(0)
figures = allocator.statistics()
print(f"{figures.in_use >> 20} MiB in use, {figures.committed >> 20} MiB borrowed")
for block in allocator.snapshot():
    print(f"{block.bytes} bytes at {block.address:#x}, on stream {block.stream:#x}")

del numbers
print(f"{allocator.trim() >> 20} MiB given back")
