"""PyTorch's DataLoader on one data set in the host store. Its workers are forked: they read the data set in place, and write their
batches into memory of the store, which the trainer reads. With pinned=True that takes the place of pin_memory, without its copy.

    GPUMEM_RUNTIME_DIR=~/.gpumem python3 torch_data_set.py      # the broker's configuration has [host]; no GPU is needed
"""
import gpumem
import numpy
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

BATCH, WORKERS, PREFETCH = 256, 4, 2
# A worker prepares PREFETCH batches while the trainer uses one, and one more is under way.
SLOTS = PREFETCH + 2


def load() -> dict:
    """Called in one process: the others wait for the region."""
    return {"images": numpy.random.default_rng(0).integers(0, 256, (64 * BATCH, 784), dtype="uint8")}


class Images(Dataset):
    """Rows of the region, in place. In a worker they are at the same addresses as in its parent."""

    def __init__(self, images):
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int):
        return self._images[row]


class IntoStore:
    """As collate_fn: writes a batch into a slot of its worker, and answers the slot. Nothing else passes between the processes."""

    def __init__(self, slots: torch.Tensor):
        self._slots, self._next = slots, 0

    def __call__(self, rows: list) -> tuple[int, int, int]:
        worker, slot = get_worker_info().id, self._next
        self._next = (slot + 1) % SLOTS
        self._slots[worker, slot, :len(rows)] = torch.from_numpy(numpy.stack(rows)) / 255
        return worker, slot, len(rows)


with gpumem.Session.connect(label="trainer") as session:
    with (gpumem.map_or_publish_arrays(session, "images", load, device="host") as region,
          session.open_slice(device="host") as slice):        # pinned=True for a GPU
        images, size = region.arrays()["images"].numpy(), 4 * WORKERS * SLOTS * BATCH * 784
        slice.grow(size)
        slots = torch.from_numpy(numpy.frombuffer(slice.view(0, size), "float32").reshape(WORKERS, SLOTS, BATCH, 784))
        loader = DataLoader(Images(images), BATCH, shuffle=True, num_workers=WORKERS, prefetch_factor=PREFETCH,
                            collate_fn=IntoStore(slots), multiprocessing_context="fork")
        # On a GPU: slots[...].to("cuda", non_blocking=True), and synchronise before the next batch but one.
        means = [float(slots[worker, slot, :count].mean()) for worker, slot, count in loader]
        print(f"{region.size >> 20} MiB on {region.device}, {len(means)} batches, the mean is {sum(means) / len(means):.3f}")
