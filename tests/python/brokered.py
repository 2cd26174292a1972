"""A broker on the test's machine, for tests of the package gpumem and what stands on it."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import pytest

BUILD = pathlib.Path(os.environ.get("GPUMEM_BUILD", "."))
POOL = 256 << 20  # of each device: contexts and drivers' own pools want the rest
PATIENCE_SECONDS = 60


def eventually(true, what: str) -> None:
    """Waits until true() holds; otherwise the test fails with the words `what`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


class Broker:
    """gpumemd, from enter to exit, lending POOL bytes of each device of the machine. Processes that are started
    meanwhile find it by their environment. `more`: configuration."""

    def __init__(self, more: str = ""):
        self._more = more

    def __enter__(self) -> "Broker":
        self._folder = tempfile.TemporaryDirectory(prefix="gpumem-broker-")
        self.runtime = str(pathlib.Path(self._folder.name, "run"))
        config = pathlib.Path(self._folder.name, "gpumemd.toml")
        config.write_text(f'[broker]\nreserve = "{POOL}"\n{self._more}')
        self._process = subprocess.Popen([BUILD / "daemon/gpumemd", "--config", config, "--runtime-dir", self.runtime,
                                          "--driver-dir", os.environ["GPUMEM_SIM_MACHINE"], "--log-level", "warning"])
        os.environ["GPUMEM_RUNTIME_DIR"] = self.runtime
        eventually(lambda: self._process.poll() is not None or self._run("status").returncode == 0, "a broker")
        return self

    def __exit__(self, *_: object) -> None:
        del os.environ["GPUMEM_RUNTIME_DIR"]
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)
        self._folder.cleanup()

    @contextlib.contextmanager
    def stopped(self):
        """Meanwhile it answers nobody."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _run(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([BUILD / "client/cli/gpumem", "--runtime-dir", self.runtime, *words, "--json"],
                              capture_output=True, text=True)

    def ask(self, *words: str) -> dict:
        """What `gpumem WORDS --json` answers."""
        answered = self._run(*words)
        assert answered.returncode == 0, answered.stderr
        return json.loads(answered.stdout)

    def devices(self) -> list:
        return self.ask("status")["devices"]

    def sessions(self) -> list:
        return self.ask("ps")["sessions"]

    def charged(self, label: str) -> list[int]:
        """Bytes, of each session of that label."""
        return [sum(slice["charged"] for slice in one["slices"]) for one in self.sessions() if one["label"] == label]

    def lent(self) -> int:
        """Bytes of all devices."""
        return sum(device["pool"] - device["free"] for device in self.devices())

    def at_rest(self) -> bool:
        """Nobody is there, and all that was lent is proved free."""
        return not self.sessions() and self.lent() == 0


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def context():
    """The device's own context, which stays once it is made."""
    from bindings import cu, ok  # here, for not all who have a broker have cuda-bindings

    ok(cu.cuInit(0))
    return ok(cu.cuDevicePrimaryCtxRetain(0))


@pytest.fixture
def session(context):
    import gpumem

    with gpumem.Session.connect(label="test") as session:
        yield session


@pytest.fixture(autouse=True)
def kept(context, broker, used):
    """Every test leaves the broker at rest, and on each device exactly the memory in use that it found: a moment
    after it, since memory that came back is destroyed and created anew."""
    before = [used(0), used(1)]
    yield
    eventually(broker.at_rest, f"a broker at rest, not {broker.sessions()}, {broker.lent()} bytes lent")
    eventually(lambda: [used(0), used(1)] == before, f"memory in use {before}, not {[used(0), used(1)]}")
