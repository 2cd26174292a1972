"""A JAX process on a region, in place: what jax_regions_program.py finds. The device is simulated, so that JAX for the CPU
computes with its memory."""
import json
import os
import pathlib
import re
import subprocess

import gpumem
import numpy as np
import pytest
from cuda.bindings import driver as cu
from gpumem import MIB

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


def found_by(role: str) -> dict:
    done = subprocess.run([os.environ["COEXISTENCE_PYTHON"], PROGRAM, role], env={**os.environ, "JAX_PLATFORMS": "cpu"},
                          capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_jax_computes_with_a_region_in_place(context, broker):
    dice = np.random.default_rng(1)
    given = {"kernel": dice.standard_normal((512, 256), dtype="float32"),
             "bias": Bfloat16(dice.standard_normal(256, dtype="float32")),
             "input": dice.standard_normal((8, 512), dtype="float32")}
    with gpumem.Session.connect(label="publisher") as session, gpumem.publish_arrays(session, "model", given):
        found = found_by("arrays")
    assert found["computed"] == found["ordinary"]
    assert found["in_place"] == ["kernel", "bias", "input"]
    assert found["dtypes"] == {"kernel": "float32", "bias": "bfloat16", "input": "float32"}


def test_a_tree_is_published_by_its_key_paths_and_loaded_in_place(context, broker):
    found = found_by("tree")
    assert found["names"] == ["layers/0/kernel", "layers/1/kernel", "step"]
    assert found["same"] == [{"layers": [{"kernel": True}, {"kernel": True}], "step": True}] * 2 and found["in_place"]
    assert found["other"].startswith("StaleLayout: array 'layers/1/kernel' is float16")
    assert found["more"].startswith("StaleLayout: the region has no array 'more'")
    assert found["twice"].startswith("InvalidArgument: two leaves of the tree are called 'a/b'")
    assert found["leaf"].startswith("InvalidArgument")
    assert found["explained"].startswith("RESOURCE_EXHAUSTED: Out of memory\ngpu0: ")


def test_jax_is_limited_by_what_the_slices_may_hold(context, broker):
    found = found_by("settings")
    total = 1 << 30  # of the simulated devices; the pools have 256 MiB
    assert found["fractions"] == [pytest.approx(84 / 1024, abs=1e-6), pytest.approx(128 / 1024, abs=1e-6)]
    assert found["preallocate"] == [False, False]
    assert len(found["limits"]) == 2 and all(0 <= 84 * MIB - limit <= total // 1_000_000 + 1
                                             for limit in found["limits"].values())
    assert found["little"].startswith("InvalidArgument: a slice of") and found["late"].startswith("FailedPrecondition: JAX has")


def test_the_jax_example_of_the_page_on_regions_runs(context, broker):
    page = (PROGRAM.parents[3] / "docs/regions-python.md").read_text().partition("## JAX")[2].partition("\n## ")[0]
    [example] = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    ended = subprocess.run([os.environ["COEXISTENCE_PYTHON"], "-c", example], env={**os.environ, "JAX_PLATFORMS": "cpu"},
                           text=True, capture_output=True, timeout=280)
    assert ended.returncode == 0, ended.stderr
