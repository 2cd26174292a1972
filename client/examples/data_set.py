"""One data set for all processes of a machine, in the host store: the first process loads it, the others map it. Forked workers
read it in place, and prepare batches in memory of the store. The trainer has these without a copy.

    GPUMEM_RUNTIME_DIR=~/.gpumem python3 data_set.py      # the broker's configuration has [host]; no GPU is needed
"""
import multiprocessing

import gpumem
import numpy

BATCH, SLOTS, WORKERS = 256, 8, 4


def load() -> dict:
    """Called in one process: the others wait for the region."""
    return {"images": numpy.random.default_rng(0).integers(0, 256, (64 * BATCH, 784), dtype="uint8")}


def prepare(images, batches, tasks, done) -> None:
    """A worker. Its parent had mapped both: what it writes is there for the trainer."""
    for slot, rows in iter(tasks.get, None):
        batches[slot] = images[rows] / 255
        done.put(slot)


def train(images, batches) -> float:
    """The mean over all pixels, for want of a model."""
    fork = multiprocessing.get_context("fork")
    tasks, done = fork.SimpleQueue(), fork.SimpleQueue()
    workers = [fork.Process(target=prepare, args=(images, batches, tasks, done)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    order = iter(numpy.random.default_rng(1).permutation(len(images)).reshape(-1, BATCH))
    for slot in range(SLOTS):
        tasks.put((slot, next(order)))
    total = 0.0
    for _ in range(len(images) // BATCH):
        slot = done.get()
        total += float(batches[slot].mean())       # on a GPU: torch.from_numpy(batches[slot]).to("cuda", non_blocking=True)
        rows = next(order, None)                   # the slot is free again: with a GPU, once the copy is done
        if rows is not None:
            tasks.put((slot, rows))
    for _ in workers:
        tasks.put(None)
    for worker in workers:
        worker.join()                              # before the memory goes
    return total / (len(images) // BATCH)


with gpumem.Session.connect(label="trainer") as session:
    with (gpumem.map_or_publish_arrays(session, "images", load, device="host") as region,
          session.open_slice(device="host") as slice):       # pinned=True for a GPU
        slice.grow(4 * SLOTS * BATCH * 784)
        batches = numpy.frombuffer(slice.view(0, 4 * SLOTS * BATCH * 784), "float32").reshape(SLOTS, BATCH, 784)
        print(f"{region.size >> 20} MiB on {region.device}, the mean is {train(region.arrays()['images'].numpy(), batches):.3f}")
