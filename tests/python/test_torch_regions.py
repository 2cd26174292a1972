"""PyTorch processes on one copy of a model: what torch_regions_program.py finds. The device is simulated, so that PyTorch for
the CPU computes with its memory in place."""
import contextlib
import pathlib

import pytest
from cuda.bindings import driver as cu
from gpumem import MIB

from bindings import ok
from brokered import broker, kept  # noqa: F401, fixtures
from framework_process import FrameworkProcess

PROGRAM = pathlib.Path(__file__).with_name("torch_regions_program.py")
READERS = 4


@pytest.fixture(scope="module", autouse=True)
def context():
    ok(cu.cuInit(0))
    return ok(cu.cuDevicePrimaryCtxRetain(0))


def test_four_pytorch_processes_predict_by_one_copy_as_its_publisher(broker):
    with contextlib.ExitStack() as running:
        published = running.enter_context(FrameworkProcess(PROGRAM, "publish")).hear()
        readers = [running.enter_context(FrameworkProcess(PROGRAM, "map")) for _ in range(READERS)]
        for one in [reader.hear() for reader in readers]:
            assert one["predicted"] == published["predicted"]
            assert one["distinct"] > 1000  # predictions worth comparing
            assert one["in_place"] == one["names"] and len(one["names"]) == 21
            assert one["private"] == [f"{layer}.{name}" for layer in (1, 4, 7)
                                      for name in ("num_batches_tracked", "running_mean", "running_var")]
        # one copy, and the few that layers write to of each reader's own
        [whole] = broker.charged("publish")
        assert published["bytes"] > 200_000_000 and published["bytes"] < whole < published["bytes"] + 4 * MIB
        assert broker.charged("map") == [2 * MIB] * READERS
        assert broker.lent() == whole + READERS * 2 * MIB
        # a reader whose statistics move on does so by itself
        assert readers[0].say("train")["predicted"] != published["predicted"]
        assert [reader.say("predict")["predicted"] for reader in readers[1:]] == [published["predicted"]] * (READERS - 1)
