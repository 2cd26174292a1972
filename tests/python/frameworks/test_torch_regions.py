"""PyTorch processes on one copy of a model: what torch_regions_program.py finds. The device is simulated, so that PyTorch for
the CPU computes with its memory in place."""
import contextlib
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
from cuda.bindings import driver as cu
from gpumem import MIB

import safetensors_file
from bindings import ok
from brokered import broker, kept  # noqa: F401, fixtures
from framework_process import FrameworkProcess

PROGRAM = pathlib.Path(__file__).with_name("torch_regions_program.py")
WIDTHS = (1024, 4096, 8192, 1536)
READERS = 4


@pytest.fixture(scope="module", autouse=True)
def context():
    ok(cu.cuInit(0))
    return ok(cu.cuDevicePrimaryCtxRetain(0))


@pytest.fixture
def file(tmp_path):
    """A model of 201 MB, by the names of the program's state_dict: layers, and the statistics behind each."""
    dice, arrays = np.random.default_rng(5), {}
    for number, (inputs, outputs) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        linear, norm = 3 * number, 3 * number + 1
        arrays[f"{linear}.weight"] = dice.standard_normal((outputs, inputs), dtype="float32") / 64
        for name in (f"{linear}.bias", f"{norm}.weight", f"{norm}.bias", f"{norm}.running_mean"):
            arrays[name] = dice.standard_normal(outputs, dtype="float32") / 4
        arrays[f"{norm}.running_var"] = dice.random(outputs, dtype="float32") + 0.5
        arrays[f"{norm}.num_batches_tracked"] = np.array(7)
    path = tmp_path / "model.safetensors"
    assert safetensors_file.write(path, arrays) > 200_000_000
    return path


def test_four_pytorch_processes_predict_by_one_copy_as_by_an_ordinary_load(broker, file):
    with contextlib.ExitStack() as running:
        published = running.enter_context(FrameworkProcess(PROGRAM, "publish", file)).hear()
        readers = [running.enter_context(FrameworkProcess(PROGRAM, "map")) for _ in range(READERS)]
        for one in [reader.hear() for reader in readers]:
            assert one["predicted"] == published["predicted"]
            assert one["distinct"] > 1000  # predictions worth comparing
            assert one["in_place"] == one["names"] and len(one["names"]) == 21
            assert one["private"] == [f"{layer}.{name}" for layer in (1, 4, 7)
                                      for name in ("num_batches_tracked", "running_mean", "running_var")]
        # one copy, and the few that layers write to of each reader's own
        [whole] = broker.charged("publish")
        assert file.stat().st_size < whole < file.stat().st_size + 4 * MIB
        assert broker.charged("map") == [2 * MIB] * READERS
        assert broker.lent() == whole + READERS * 2 * MIB
        # a reader whose statistics move on does so by itself
        assert readers[0].say("train")["predicted"] != published["predicted"]
        assert [reader.say("predict")["predicted"] for reader in readers[1:]] == [published["predicted"]] * (READERS - 1)


def test_a_modules_buffers_are_its_readers_own_and_its_parameters_are_not(broker):
    with FrameworkProcess(PROGRAM, "small") as process:
        found = process.hear()
    assert found["private"] == ["calls", "scale"]
    assert found["same"] and found["tied"] and found["calls"] == [1.0, 1.0]
    # what is read-only is not trained
    assert found["gradients"] == {"first.weight": False, "first.bias": False, "last.bias": False}
    assert found["own_gradients"]
    assert "'first.weight'" in found["wrong"] and found["unchanged"]
    assert "no array 'first.weight'" in found["lacking"]
    # a buffer that no state_dict has
    assert found["scale"] == [2.0] * 4 and "no array 'scale'" in found["without_memory"]


def test_the_pytorch_example_of_the_page_on_regions_runs(broker):
    page = (PROGRAM.parents[3] / "docs/regions-python.md").read_text().partition("## PyTorch")[2].partition("\n## ")[0]
    [example] = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    ended = subprocess.run([os.environ["COEXISTENCE_PYTHON"], "-c", example], text=True, capture_output=True, timeout=280)
    assert ended.returncode == 0, ended.stderr
