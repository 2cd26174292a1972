"""Allocation and free, one after the other, over and over: what the scripts of sections/allocators.py time."""
from typing import Any, Callable, Dict, List

import stages

KIB = 1 << 10
SMALL = [256, 4 * KIB, 64 * KIB, 1 << 20]
LARGE = [2 << 20, 32 << 20, 256 << 20, 1 << 30]
BATCH = 64


def sizes() -> List[int]:
    """The sizes that the budget leaves room for."""
    return [size for size in SMALL + LARGE if size <= stages.budget() // 4]


def times(pair: Callable[[int], object], settle: Callable[[], object]) -> List[Dict[str, Any]]:
    """{size, count, median_ns, p10_ns, p90_ns} of a pair of each size, BATCH at a time. `settle` waits for the device:
    a batch before, so that nothing is new, and after."""
    found = []
    for size in sizes():
        def batch(size: int = size) -> None:
            for _ in range(BATCH):
                pair(size)

        batch()
        settle()
        timed = stages.timed(batch, size, seconds=0.25, most=400)
        settle()
        found.append({key: value // BATCH if key.endswith("_ns") else value for key, value in timed.items()})
    return found
