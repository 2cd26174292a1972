"""A JAX process on a region, in place: what jax_regions_program.py finds. The device is simulated, so that JAX for the CPU
computes with its memory."""
import json
import os
import pathlib
import subprocess

import gpumem
import numpy as np
import pytest
from cuda.bindings import driver as cu

from bindings import ok
from brokered import broker, kept  # noqa: F401, fixtures

PROGRAM = pathlib.Path(__file__).with_name("jax_regions_program.py")


@pytest.fixture(scope="module")
def context():
    ok(cu.cuInit(0))
    return ok(cu.cuDevicePrimaryCtxRetain(0))


class Bfloat16:
    """NumPy has no such numbers: the upper halves of float32."""

    dtype = "bfloat16"

    def __init__(self, values: np.ndarray):
        self._halves = np.ascontiguousarray(values.view("uint16")[1::2])
        self.__array_interface__ = self._halves.__array_interface__


def test_jax_computes_with_a_region_in_place(context, broker):
    dice = np.random.default_rng(1)
    given = {"kernel": dice.standard_normal((512, 256), dtype="float32"),
             "bias": Bfloat16(dice.standard_normal(256, dtype="float32")),
             "input": dice.standard_normal((8, 512), dtype="float32")}
    with gpumem.Session.connect(label="publisher") as session, gpumem.publish_arrays(session, "model", given):
        done = subprocess.run([os.environ["COEXISTENCE_PYTHON"], PROGRAM], env={**os.environ, "JAX_PLATFORMS": "cpu"},
                              capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["computed"] == found["ordinary"]
    assert found["in_place"] == ["kernel", "bias", "input"]
    assert found["dtypes"] == {"kernel": "float32", "bias": "bfloat16", "input": "float32"}
