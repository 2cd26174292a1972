"""Handles belong to one process: copies and other processes are refused in words."""
import copy
import dataclasses
import enum
import gc
import inspect
import os
import pickle

import gpumem
import numpy as np
import pytest
from gpumem import MIB

from brokered import Broker, context, kept, session  # noqa: F401, fixtures

GRID = np.arange(12, dtype="float32").reshape(3, 4)
HANDLES = ["Allocator", "Array", "Arrays", "Block", "HostBuffer", "HostMemory", "Import", "Publication", "Region", "Replicas", "Reservation", "Session", "Slice"]


@pytest.fixture(scope="module")
def broker():
    with Broker('[host]\nsize = "64MiB"\n') as running:
        yield running


@pytest.fixture
def handles(session):
    """One of each class, by its name."""
    with (session.open_host(pinned=False) as host, host.buffer(MIB) as buffer,
          session.open_slice() as slice, session.open_allocator() as allocator, allocator.allocate(MIB) as block,
          session.import_handle(block.export_handle()) as imported, session.map_or_reserve("mine") as reservation,
          gpumem.publish_arrays(session, "weights", {"grid": GRID}) as publication,
          gpumem.publish_replicas(session, "replicas", {"grid": GRID}) as replicas, session.map_region("weights") as region):
        arrays = region.arrays()
        found = {type(one).__name__: one for one in (session, host, buffer, slice, allocator, block, imported, reservation, publication,
                                                     replicas, region, arrays, arrays["grid"])}
        yield found
        found.clear()
        del arrays
        gc.collect()  # what was raised refers to them


def test_every_class_that_is_no_plain_value_is_a_handle():
    classes = [one for one in map(vars(gpumem).get, gpumem.__all__) if inspect.isclass(one)]
    plain = [one for one in classes if dataclasses.is_dataclass(one) or issubclass(one, (enum.Enum, Exception))]
    assert sorted(one.__name__ for one in classes if one not in plain) == HANDLES


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", HANDLES)
def test_a_handle_is_not_copied(handles, name, copied):
    with pytest.raises(TypeError, match=f"gpumem.{name} cannot be copied or passed to another process.*export_handle"):
        copied(handles[name])


READS = {"numpy": lambda array: array.numpy(), "numpy.asarray": np.asarray, "buffer": lambda array: array.buffer(),
         "tobytes": lambda array: array.tobytes(), "dlpack": np.from_dlpack, "address": lambda array: array.address,
         "__cuda_array_interface__": lambda array: array.__cuda_array_interface__}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_forked_child_that_reads_an_array_is_told(handles, read):
    array = handles["Array"]
    read(array)
    process = os.fork()
    if process == 0:
        told = "nothing"
        try:
            read(array)
        except gpumem.FailedPrecondition as error:
            told = str(error)
        except BaseException as error:
            told = repr(error)
        os._exit(0 if "a forked child does not have it" in told else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert array.tobytes() == GRID.tobytes()
