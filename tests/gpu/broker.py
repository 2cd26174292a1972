"""A broker of a section's own."""
import json
import pathlib
import subprocess
import tempfile
import time
from typing import Any

from session import Session

PATIENCE_SECONDS = 60


class Broker:
    """A gpumemd that owns `pool` bytes of the session's GPU, from enter to exit."""

    def __init__(self, session: Session, pool: int):
        self._session = session
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="broker-", dir=session.work))
        config = self._folder / "gpumemd.toml"
        config.write_text(f'[broker]\nreserve = "{pool}"\n')
        self.runtime = self._folder / "run"
        self._command = [str(session.layout.program("gpumemd")), "--config", str(config),
                         "--runtime-dir", str(self.runtime), "--log-level", "warning"]
        if session.driver_folder:
            self._command += ["--driver-dir", session.driver_folder]

    def __enter__(self) -> "Broker":
        self._process = subprocess.Popen(self._command, env=self._session.environment(), stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (status := self.ask("status")) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError("gpumemd did not start; its words are in the log")
            time.sleep(0.02)
        self.started = status
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, *words: str) -> dict[str, Any] | None:
        """The output of `gpumem WORDS --json`; None if the command fails."""
        asked = subprocess.run([self._session.layout.program("gpumem"), "--runtime-dir", self.runtime, *words, "--json"],
                               capture_output=True, text=True)
        return json.loads(asked.stdout) if asked.returncode == 0 else None

    def look(self) -> None:
        """Lets it ask the driver now who holds what."""
        self.ask("reconcile", "--now")

    def pool(self) -> int:
        """Bytes of the session's GPU that the broker owns."""
        return next(d["pool"] for d in self.started["devices"] if d["uuid"] == self._session.device)
