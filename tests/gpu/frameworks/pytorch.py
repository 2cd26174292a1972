"""PyTorch: its context, its caching allocator, and every allocation of a small training step."""
from typing import Any, Dict, List

import stages

EVENTS = 20000  # of a trace, at most


def trace(torch: Any) -> List[Dict[str, Any]]:
    """{op, size, stream, time_us, address} of a small training, as the caching allocator saw it."""
    torch.cuda.memory._record_memory_history(max_entries=EVENTS)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(5):
        batch = torch.randn(256, 1024, device="cuda")
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return [{"op": e.get("action"), "size": e.get("size"), "stream": e.get("stream"), "time_us": e.get("time_us"),
             "address": e.get("addr")} for e in events[:EVENTS]]


def main() -> None:
    torch = stages.use("torch")
    if not torch.cuda.is_available():
        stages.leave("torch sees no GPU (a build without CUDA, or a driver that is too old for it)")
    torch.cuda.init()
    torch.cuda.synchronize()
    stages.stage("context", cuda=str(torch.version.cuda))
    size = stages.piece()
    held = torch.empty(size, dtype=torch.uint8, device="cuda")
    held.fill_(1)
    torch.cuda.synchronize()
    stages.stage("allocated", bytes=size, reserved=torch.cuda.memory_reserved())
    del held
    torch.cuda.empty_cache()
    stages.stage("freed")

    def cached() -> None:
        torch.empty(size, dtype=torch.uint8, device="cuda")

    def fresh() -> None:
        torch.empty(size, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()

    cached()
    stages.stage("latencies", latencies={"caching allocator, alloc and free": stages.timed(cached, size),
                                         "past its cache, alloc and free": stages.timed(fresh, size)})
    try:
        stages.stage("trace", trace=trace(torch))
    except (AttributeError, KeyError, TypeError) as error:  # the recorder is not public: it may change
        stages.stage("no_trace", why=f"{type(error).__name__}: {error}")


stages.play(main)
