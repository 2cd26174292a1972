"""TensorFlow processes on one copy of a model: what tensorflow_regions_program.py finds. The device is simulated, so that
TensorFlow for the CPU computes with its memory in place."""
import contextlib
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import types

import gpumem
import numpy as np
import pytest
from cuda.bindings import driver as cu
from gpumem import MIB
from gpumem.safetensors import publish_safetensors
from gpumem.tensorflow import memory_limit

import safetensors_file
from bindings import ok
from brokered import broker, kept  # noqa: F401, fixtures
from framework_process import FrameworkProcess

PROGRAM = pathlib.Path(__file__).with_name("tensorflow_regions_program.py")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
WIDTHS = (1024, 4096, 8192, 1536)
READERS = 4


@pytest.fixture(scope="module")
def context():
    ok(cu.cuInit(0))
    return ok(cu.cuDevicePrimaryCtxRetain(0))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A model of 201 MB, by the paths of the program's weights."""
    shapes = {}
    for number, (rows, columns) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        shapes |= {f"net/dense_{number}/kernel": (rows, columns), f"net/dense_{number}/bias": (columns,)}
    shapes |= {f"net/norm/{name}": (WIDTHS[2],) for name in ("gamma", "beta", "moving_mean", "moving_variance")}
    dice, arrays = np.random.default_rng(5), {}
    for name, shape in shapes.items():
        values = dice.standard_normal(shape, dtype="float32") / 64
        arrays[name] = np.abs(values) if name.endswith("variance") else values
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    assert safetensors_file.write(path, arrays) > 200_000_000
    return path


def program(*words: object) -> FrameworkProcess:
    return FrameworkProcess(PROGRAM, *words, **QUIET)


def test_four_tensorflow_processes_predict_by_one_copy_as_by_an_ordinary_load(broker, file):
    with contextlib.ExitStack() as running:
        publisher = running.enter_context(program("publish", file))
        published = publisher.hear()
        readers = [running.enter_context(program("map")) for _ in range(READERS)]
        found = [reader.hear() for reader in readers]
        for one in found:
            assert one["predicted"] == published["predicted"] != one["before"]
            assert one["distinct"] > 1000  # predictions worth comparing
            assert one["in_place"] == one["weights"] and len(one["weights"]) == 10
            assert one["private"] == ["net/norm/moving_mean", "net/norm/moving_variance"]
            assert one["limits"] == {}  # TensorFlow for the CPU has no GPU to limit
        # one copy, and a few small ones of each reader's own
        [whole] = broker.charged("publish")
        assert published["bytes"] > 200_000_000 and published["bytes"] < whole < published["bytes"] + 4 * MIB
        assert broker.charged("map") == [2 * MIB] * READERS
        assert broker.lent() == whole + READERS * 2 * MIB
        # a reader that trains does so by itself
        trained = readers[0].say("train")["predicted"]
        assert trained != published["predicted"]
        assert [reader.say("predict")["predicted"] for reader in readers[1:]] == [published["predicted"]] * (READERS - 1)
        assert readers[0].say("predict")["predicted"] == trained


@pytest.mark.parametrize("where", ["", "everywhere"])
def test_a_tensorflow_model_has_the_weights_on_each_replica_of_its_strategy(broker, file, where):
    devices = [device["uuid"] for device in broker.devices()]
    with program("publish", file, *[where] if where else []) as publisher:
        published = publisher.hear()
        with program("mirror") as mirror:
            found = mirror.hear()
            assert found["predicted"] == found["by_one"] == [published["predicted"]] * 2
            assert found["before"][0] != published["predicted"]
            assert found["in_place"] == found["weights"] and len(found["weights"]) == 10
            assert [device[-5:] for device in found["devices"]] == ["CPU:0", "CPU:1"]
            assert "2 replicas, and there are 3 regions" in found["refused"] and found["unchanged"]
            assert found["limits"] == {}
            # one copy on each device that it was published on; a few small ones for each of three loads
            assert found["regions"] == (devices if where else devices[:1] * 2)
            assert sum(broker.charged("mirror")) <= 3 * 2 * MIB < min(broker.charged("publish"))


def test_tensorflow_is_limited_on_each_device_by_what_its_slice_there_may_hold(context, broker, monkeypatch):
    """With a stand-in: TensorFlow for the CPU sees no GPU."""
    limits = {}
    config = types.SimpleNamespace(
        list_physical_devices=lambda kind: [types.SimpleNamespace(name=f"/physical_device:{kind}:{n}") for n in range(2)],
        LogicalDeviceConfiguration=lambda memory_limit: memory_limit,
        set_logical_device_configuration=lambda gpu, devices: limits.update({gpu.name: devices}))
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=config))
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    with gpumem.Session.connect(label="limits") as session:
        second = session.usage()[1].device
        answered = gpumem.tensorflow.configure(session, limit={second: 100 * MIB}, reserve=16 * MIB)
        assert limits == {"/physical_device:GPU:0": [240], "/physical_device:GPU:1": [84]}  # MiB; the pools have 256
        assert answered == {name: mib * MIB for name, [mib] in limits.items()}
        assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
        with pytest.raises(gpumem.InvalidArgument, match="leaves nothing"):
            gpumem.tensorflow.configure(session, limit={second: 16 * MIB}, reserve=16 * MIB)


def test_tensorflow_tensors_of_a_published_file(context, broker, file):
    with gpumem.Session.connect(label="file") as session, publish_safetensors(session, file, "file") as publication:
        assert len(publication.layout.arrays) == 10
        with program("tensors") as reader:
            found = reader.hear()
        at = np.random.default_rng(3).standard_normal((8, WIDTHS[0]), dtype="float32")
        with session.map_region("file") as region:
            arrays = region.arrays(private=())
            for number in range(3):
                at = np.tanh(at @ arrays[f"net/dense_{number}/kernel"].numpy() + arrays[f"net/dense_{number}/bias"].numpy())
            del arrays
        assert len(found["predicted"]) == 64 and np.isfinite(at).all()
        assert "the region has no array 'sequential/dense/kernel'" in found["refused"] and found["unchanged"] and found["renamed"]
        assert len(found["unpublished"]) == 3 and all("array 'odd' cannot be published" in said for said in found["unpublished"])
        assert found["written"] == ["net/counting/calls", "net/norm/moving_mean", "net/norm/moving_variance"]
        assert found["chosen"] == ["net/frozen/bias", "net/quantised/bias"]
        assert found["explained"].startswith("OOM when allocating tensor\ngpu0: ")
        assert f"tenant {found['tenant']} has " in found["explained"] and "256 MiB are charged to nobody" in found["explained"]


def test_the_tensorflow_example_of_the_page_on_regions_runs(context, broker):
    page = (PROGRAM.parents[3] / "docs/regions-python.md").read_text().partition("## TensorFlow")[2].partition("\n## ")[0]
    [example] = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    ended = subprocess.run([os.environ["COEXISTENCE_PYTHON"], "-c", example], env={**os.environ, **QUIET}, text=True,
                           capture_output=True, timeout=280)
    assert ended.returncode == 0, ended.stderr


def test_the_limit_for_tensorflow_depends_on_promises_and_not_on_what_is_free():
    usage = gpumem.DeviceUsage("GPU-1", pool=64 << 30, free=0, guarantee=0, limit=8 << 30, charged=8 << 30, available=0,
                               pressure=0, pressure_deadline=0)
    assert memory_limit(usage, 80 << 30) == (8 << 30) - (128 << 20)
    assert memory_limit(usage, 4 << 30, reserve=0) == 4 << 30  # the slice of the drop-in driver
    assert memory_limit(usage, 80 << 30, limit=(2 << 30) + 5, reserve=MIB) == (2 << 30) - MIB
    assert memory_limit(dataclasses.replace(usage, limit=128 << 30), 80 << 30, reserve=0) == 64 << 30
    with pytest.raises(gpumem.InvalidArgument, match="leaves nothing"):
        memory_limit(usage, 80 << 30, limit=64 * MIB)
