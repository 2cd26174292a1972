"""bench/region_load.py: what it measures on another driver than its own, and which aims it finds missed."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))
import region_load  # noqa: E402

FIGURES = {"mib": 1024, "load_per_first": 50.0, "load_per_later": 60.0, "later_map_ms": 5.0}


def test_a_region_is_measured_on_the_driver_that_is_named():
    ended = subprocess.run([sys.executable, BENCH / "region_load.py", "--build", os.environ["GPUMEM_BUILD"], "--mib", "16", "--rounds",
                            "1", "--driver-dir", os.environ["GPUMEM_SIM_MACHINE"]], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    figures = json.loads(ended.stdout)
    assert figures["mib"] == 16 and min(figures[name] for name in ("load_ms", "first_map_ms", "later_map_ms")) > 0
    # a folder without a driver is no reason to simulate one
    refused = subprocess.run([sys.executable, BENCH / "region_load.py", "--build", os.environ["GPUMEM_BUILD"], "--mib", "8",
                              "--driver-dir", "/nowhere"], capture_output=True, text=True, timeout=200)
    assert refused.returncode == 1 and "the broker does not start" in refused.stderr


@pytest.mark.parametrize("change, missed", [
    ({}, 0), ({"load_per_first": 49.9}, 1), ({"load_per_later": 49.9}, 1), ({"later_map_ms": 5.1}, 1),
    ({"mib": 512, "load_per_first": 25.0}, 0), ({"mib": 512, "later_map_ms": 5.1}, 1), ({"mib": 2048, "later_map_ms": 10.0}, 0)])
def test_aims_depend_on_the_size(change, missed):
    assert len(region_load.missed_aims(FIGURES | change)) == missed


@pytest.mark.parametrize("strict, status", [([], 0), (["--strict"], 1)])
def test_a_missed_aim_fails_a_strict_run(strict, status):
    program = "import region_load, sys; region_load.LEAST_RATIO = 1e9; sys.exit(region_load.main())"
    ended = subprocess.run([sys.executable, "-c", program, "--build", os.environ["GPUMEM_BUILD"], "--mib", "8", "--rounds", "1",
                            *strict], cwd=BENCH, capture_output=True, text=True, timeout=200)
    assert ended.returncode == status and "missed: loading takes" in ended.stderr, ended.stderr
