"""Maps the data set, forks workers that read it, says what all of them found, and stays until its standard input ends.
    data_set_program.py WORKERS"""
import json
import os
import sys

import gpumem
import numpy as np


def sum_of(data: np.ndarray) -> int:
    """In pieces, as a loader reads it: no second copy of it is in memory."""
    return sum(int(piece.sum(dtype="uint64")) for piece in np.array_split(data, 64))


def worker(data: np.ndarray, answers: int) -> None:
    """As a loader's: it has what its parent had mapped when it was forked."""
    os.write(answers, f"{os.getpid()} {sum_of(data)}\n".encode())
    sys.stdin.read()
    os._exit(0)


with gpumem.Session.connect(label="reader") as session, session.map_region("data set") as region:
    data = np.asarray(region.arrays()["data"])
    reading, writing = os.pipe()
    for _ in range(int(sys.argv[1])):
        if os.fork() == 0:
            worker(data, writing)
    with os.fdopen(reading) as answers:
        told = [answers.readline().split() for _ in range(int(sys.argv[1]))]
    print(json.dumps({"workers": [int(pid) for pid, _ in told],
                      "sums": [sum_of(data), *(int(found) for _, found in told)]}), flush=True)
    sys.stdin.read()
    del data
    for pid, _ in told:
        os.waitpid(int(pid), 0)
