"""PyTorch's DataLoader on a data set in the host store, with forked workers that write into the store: the example."""
import os
import pathlib
import re
import subprocess

import pytest

from brokered import Broker, eventually, kept  # noqa: F401, fixtures

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "client/examples/torch_data_set.py"


@pytest.fixture(scope="module")
def broker():
    with Broker('[host]\nsize = "128MiB"\n') as running:
        yield running


def test_workers_of_a_pytorch_loader_write_their_batches_into_the_store(broker):
    ended = subprocess.run([os.environ["COEXISTENCE_PYTHON"], "-W", "ignore", EXAMPLE], capture_output=True, text=True,
                           timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.fullmatch(r"\d+ MiB on host, 64 batches, the mean is 0\.500\n", ended.stdout)
    eventually(broker.at_rest, "nothing lent")
