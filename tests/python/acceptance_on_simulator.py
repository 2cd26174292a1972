"""The GPU acceptance's session and broker on the test's machine."""
import os
import pathlib
import sys

import pytest

from brokered import BUILD

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
import broker as acceptance_broker  # noqa: E402
from nvml import Nvml  # noqa: E402
from session import MIB, Session  # noqa: E402


@pytest.fixture
def context():
    """None here: the script has one."""


@pytest.fixture
def broker(tmp_path):
    """The acceptance's own."""
    machine = os.environ["GPUMEM_SIM_MACHINE"]
    with Nvml(machine) as nvml:
        device = nvml.devices[0].uuid
    session = Session(root=str(BUILD), is_bundle=False, simulated=True, driver_folder=machine, device=device, visible="",
                      budget=512 * MIB, short=True, host_python=os.environ.get("COEXISTENCE_PYTHON", sys.executable),
                      work=str(tmp_path), limit=120)
    with acceptance_broker.Broker(session, 256 * MIB) as running:
        running.session = session
        running.sessions = lambda: running.ask("ps")["sessions"]
        running.lent = lambda: sum(d["pool"] - d["free"] for d in running.ask("status")["devices"])
        running.at_rest = lambda: not running.sessions() and running.lent() == 0
        yield running
