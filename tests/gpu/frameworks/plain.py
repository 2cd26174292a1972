"""What the scripts of sections/unmodified.py have in common. Each is a program that knows nothing of gpumem.

Stages: `imported`, `context` {total, seen}: the device's bytes by the two ways in which the framework asks for them;
`trained` {losses, times, correct}: `times` of the steps in nanoseconds; `refused` {wrong}: empty if a request for too
much is the exception that programs expect, and the program goes on after it; `end`. Or `missing`, `failed` as in stages.py.
"""
import os
import time
from typing import Callable, List, Tuple

WAY = os.environ.get("GPUMEM_ACCEPTANCE_WAY", "")
STEPS = int(os.environ.get("GPUMEM_ACCEPTANCE_STEPS", "300"))


def train(step: Callable[[], float]) -> Tuple[List[float], List[int]]:
    """The loss of every step and the nanoseconds that it took. `step` answers when the device is done."""
    losses, times = [], []
    for _ in range(STEPS):
        started = time.perf_counter_ns()
        losses.append(step())
        times.append(time.perf_counter_ns() - started)
    return losses, times
