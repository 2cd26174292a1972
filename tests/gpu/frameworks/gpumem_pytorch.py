"""PyTorch on one allocator, which GPUMEM_ALLOCATOR names: `own` (its caching one), `async` (the driver's,
cudaMallocAsync) or `gpumem`. A small training, whose losses are said, what its tensors hold, and pairs of allocation
and free. Stages: `imported`, `context`, `trained` {losses, correct}, `pairs` {tensors, raw}, `end`."""
import os
from typing import Any, Dict, List

import pairs
import stages

WHICH = os.environ["GPUMEM_ALLOCATOR"]
STEPS = 6
if WHICH == "async":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"


def train(torch: Any) -> List[float]:
    """The losses of a small transformer layer over sequences of changing length."""
    torch.manual_seed(20)
    model = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        batch = torch.randn(8, 64 + 32 * (step % 3), 256).cuda()
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


def correct(torch: Any) -> bool:
    """Whether blocks of many sizes, some freed between, on two streams, hold what was put into them."""
    side = torch.cuda.Stream()
    kept: Dict[int, Any] = {}
    for number in range(200):
        with torch.cuda.stream(side if number % 2 else torch.cuda.current_stream()):
            kept[number] = torch.full(((number * 7919) % 300_000 + 1,), number, dtype=torch.int32, device="cuda")
        kept.pop(number - 17 - number % 5, None)
    torch.cuda.synchronize()
    return all(bool((tensor == number).all()) for number, tensor in kept.items())


def waits_for_side_streams(torch: Any) -> bool:
    """Whether memory that a side stream still reads keeps its content after its tensor was freed."""
    side = torch.cuda.Stream()
    for number in range(20):
        tensor = torch.full((1 << 22,), number, dtype=torch.int32, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)  # cycles
            read = tensor.clone()
        tensor.record_stream(side)
        del tensor
        torch.full((1 << 22,), -1, dtype=torch.int32, device="cuda")  # takes its place, if it may
        torch.cuda.synchronize()
        if not bool((read == number).all()):
            return False
    return True


def refuses_aloud(torch: Any) -> bool:
    """Whether lack of memory and CUDA graphs are the exceptions that programs expect."""
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        return False
    except torch.OutOfMemoryError as error:
        if not str(error).startswith("CUDA out of memory."):
            return False
    try:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.CUDAGraph().capture_begin()
        return False
    except RuntimeError as error:
        return "private memory pool" in str(error)


def has_figures(torch: Any) -> bool:
    """Whether PyTorch's figures follow a tensor."""
    before = torch.cuda.memory_allocated()
    held = torch.empty(1 << 24, dtype=torch.uint8, device="cuda")
    grown = torch.cuda.memory_allocated() - before
    del held
    torch.cuda.empty_cache()
    return bool(grown == 1 << 24 and torch.cuda.memory_allocated() == before <= torch.cuda.memory_reserved())


def raw_pairs(torch: Any) -> List[Dict[str, Any]]:
    """Without a tensor around them; empty where this PyTorch has no such way in."""
    allocate = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_alloc", None)
    free = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_delete", None)
    if allocate is None or free is None:
        return []
    return pairs.times(lambda size: free(allocate(size, 0)), torch.cuda.synchronize)


def main() -> None:
    torch = stages.use("torch")
    if WHICH == "gpumem":
        import gpumem.torch
        gpumem.torch.enable(label="pytorch", wait=5.0)
    if not torch.cuda.is_available():
        stages.leave("torch sees no GPU (a build without CUDA, or a driver that is too old for it)")
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    stages.stage("context", cuda=str(torch.version.cuda))
    losses = train(torch)
    held = torch.ones(stages.piece(), dtype=torch.uint8, device="cuda")
    is_correct = correct(torch) and waits_for_side_streams(torch) and int(held.sum()) == held.numel()
    if WHICH == "gpumem":
        is_correct = is_correct and has_figures(torch) and refuses_aloud(torch)
    stages.stage("trained", losses=losses, correct=is_correct, bytes=held.numel())
    del held
    tensors = pairs.times(lambda size: torch.empty(size, dtype=torch.uint8, device="cuda"), torch.cuda.synchronize)
    stages.stage("pairs", tensors=tensors, raw=raw_pairs(torch))
    if WHICH == "gpumem":
        figures = gpumem.default_allocator(0).statistics()
        stages.stage("statistics", **vars(figures))


stages.play(main)
