"""What the scripts of sections/unmodified.py have in common. Each is a program that knows nothing of gpumem.

Stages: `imported`, `context` {total, seen}: the device's bytes by the two ways in which the framework asks for them;
`turn` {times}: of the steps since the last, in nanoseconds, none at first; `trained` {losses, correct}; `refused` {wrong}:
empty if a request for too much is the exception that programs expect, and the program goes on after it; `end`. Or `missing`,
`failed` as in stages.py. At a `turn` it waits, and trains STEPS more, or ends its training if it is told `stop`.
"""
import os
import time
from typing import Callable, List

import stages

WAY = os.environ.get("GPUMEM_ACCEPTANCE_WAY", "")
STEPS = int(os.environ.get("GPUMEM_ACCEPTANCE_STEPS", "25"))
# The share of the device that a framework takes ahead, if it does; 0 for its default.
AHEAD = float(os.environ.get("GPUMEM_ACCEPTANCE_AHEAD", "0"))
# Steps that are not timed: frameworks compile, and fill their caches.
WARM_UP = 10


def train(step: Callable[[], float]) -> List[float]:
    """The loss of every step, those of the warm-up too. `step` answers when the device is done."""
    losses = [step() for _ in range(WARM_UP)]
    times: List[int] = []
    while stages.stage("turn", times=times) != "stop":
        times = []
        for _ in range(STEPS):
            started = time.perf_counter_ns()
            losses.append(step())
            times.append(time.perf_counter_ns() - started)
    return losses
