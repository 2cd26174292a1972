"""PyTorch as its users run it: nothing of gpumem's in the program. GPUMEM_ACCEPTANCE_WAY says how it allocates:
`caching`, `expandable` (expandable segments), `async` (cudaMallocAsync), `graphs` (the training step is a CUDA graph) or
`processes` (another process computes on tensors of this one); `expandable-processes`: both. Stages: plain.py."""
import os
from typing import Any, Callable, List, Tuple

import plain
import stages

SETTINGS = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
SHARES = plain.WAY.endswith("processes")
if setting := SETTINGS.get(plain.WAY.split("-")[0]):
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = setting
WIDTH, BATCH = 1024, 4096  # so many that the device is what a step waits for


def training(torch: Any) -> Tuple[Callable[[], Any], Any]:
    """A step that answers its loss, and the batch that it reads."""
    torch.manual_seed(20)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(),
                                torch.nn.Linear(4 * WIDTH, WIDTH)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=plain.WAY == "graphs")
    batch = torch.zeros(BATCH, WIDTH, device="cuda")

    def step() -> Any:
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad(set_to_none=plain.WAY != "graphs")
        loss.backward()
        optimizer.step()
        return loss

    return step, batch


def captured(torch: Any, step: Callable[[], Any]) -> Callable[[], Any]:
    """The step as a CUDA graph, as PyTorch's manual has it: three steps on a side stream, then the capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay() -> Any:
        graph.replay()
        return loss

    return replay


def train(torch: Any) -> List[float]:
    step, batch = training(torch)
    if plain.WAY == "graphs":
        step = captured(torch, step)
    draws = torch.Generator(device="cuda").manual_seed(7)

    def next_step() -> float:
        batch.normal_(generator=draws)
        return float(step().detach())

    return plain.train(next_step)


def double(queue: Any, answers: Any) -> None:
    """In another process: computes on tensors of the first one, which stay where they are."""
    for tensor in iter(queue.get, None):
        tensor.mul_(2)
        answers.put(float(tensor.double().sum()))
        del tensor


def shares(torch: Any) -> bool:
    """Whether another process sees what this one wrote, and this one what the other wrote."""
    context = torch.multiprocessing.get_context("spawn")
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    other = context.Process(target=double, args=(queue, answers))
    other.start()
    held = [torch.full((1 << (12 + 2 * i),), i + 1.0, device="cuda") for i in range(6)]
    sums = []
    for tensor in held:
        queue.put(tensor)
        sums.append(answers.get())
    queue.put(None)
    other.join(60)
    right = all(total == 2.0 * (i + 1) * tensor.numel() for i, (tensor, total) in enumerate(zip(held, sums)))
    return bool(right and other.exitcode == 0 and all(float(t[0]) == 2.0 * (i + 1) for i, t in enumerate(held)))


def refused(torch: Any, total: int) -> str:
    """The error of a request for more memory than there is; afterwards smaller requests still work."""
    try:
        torch.empty(total, dtype=torch.uint8, device="cuda")
        return "nothing: it got as much as the device has"
    except torch.OutOfMemoryError:
        return "" if int(torch.ones(1 << 20, device="cuda").sum()) == 1 << 20 else "the device does not compute any more"


def main() -> None:
    torch = stages.use("torch")
    if not torch.cuda.is_available():
        stages.leave("torch sees no GPU (a build without CUDA, or a driver that is too old for it)")
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    total = torch.cuda.mem_get_info()[1]
    stages.stage("context", total=total, seen=torch.cuda.get_device_properties(0).total_memory)
    # Before the training, whose turns are one at a time: the other process takes seconds to start.
    right = shares(torch) if SHARES else True
    stages.stage("trained", losses=train(torch), correct=right)
    stages.stage("refused", wrong=refused(torch, total))


if __name__ == "__main__":  # the other process imports this file, too
    stages.play(main)
