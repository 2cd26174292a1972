"""The GPU acceptance's scripts of processes that share a region, with the framework of $COEXISTENCE_PACKAGE for the CPU: a
simulated device's memory is the host's."""
import os

import pytest

from acceptance_on_simulator import broker, context  # noqa: F401, fixtures; first, for it finds the acceptance
from brokered import kept  # noqa: F401, a fixture
from nvml import Nvml
from sections import frameworks
from session import MIB

SCRIPT = {"torch": "region_pytorch", "jax": "region_jax"}[os.environ["COEXISTENCE_PACKAGE"]]


def test_processes_of_the_acceptance_share_one_region(broker, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with Nvml(broker.session.driver_folder) as nvml:
        found = frameworks.share(broker.session, nvml.device(broker.session.device), broker, SCRIPT, 250)
    assert (found["verdict"], found["why"]) == ("passed", ""), found
    [shared] = [stage for stage in found["stages"] if stage["stage"] == "shared"]
    assert shared["bytes"] == 16 * MIB and len(shared["readers"]) == 3 and shared["sessions"] == 4
    assert frameworks.tables([found])[-1]["rows"][0][:3] == [SCRIPT, "16 MiB", 3]
    # what the section would complain of
    for change, why in (({"charged": 4 * shared["charged"]}, "are charged for one region"), ({"sessions": 3}, "3 sessions"),
                        ({"readers": [{**shared["readers"][0], "in_place": False}] * 3}, "copies"),
                        ({"readers": [{**shared["readers"][0], "same": False}] * 3}, "other results")):
        [complaint] = frameworks.wrong_with(shared | change)
        assert why in complaint


@pytest.mark.parametrize("name", sorted({"region_pytorch", "region_jax"} - {SCRIPT}))
def test_a_framework_that_is_missing_is_skipped_with_the_reason(broker, name):
    with Nvml(broker.session.driver_folder) as nvml:
        found = frameworks.share(broker.session, nvml.device(broker.session.device), broker, name, 100)
    assert found["verdict"] == "skipped" and "No module named" in found["why"]
