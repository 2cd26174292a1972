"""TensorFlow processes that train with tf.data on one data set in the host store: the example."""
import os
import pathlib
import re
import subprocess

import pytest

from brokered import Broker, eventually, kept  # noqa: F401, fixtures

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "client/examples/tensorflow_data_set.py"
PROCESSES = 3


@pytest.fixture(scope="module")
def broker():
    with Broker('[host]\nsize = "128MiB"\n') as running:
        yield running


def test_tensorflow_processes_train_on_one_data_set(broker):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run([os.environ["COEXISTENCE_PYTHON"], EXAMPLE, str(PROCESSES)], env=environment, capture_output=True,
                           text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == PROCESSES and len(set(lines)) == 1, "the same data, in the same order"
    assert float(re.fullmatch(r"\d+ MiB on host: accuracy (0\.\d+)", lines[0])[1]) > 0.8
    eventually(broker.at_rest, "nothing lent")
