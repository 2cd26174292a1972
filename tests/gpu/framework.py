"""How a section runs the scripts of frameworks/."""
import contextlib
import json
import pathlib
import subprocess
import threading
from typing import Any

from nvml import Device
from session import Session

SCRIPTS = pathlib.Path(__file__).resolve().parent / "frameworks"


class Framework:
    """One script under way. It says what it has done, a line of JSON at a time, and goes on when told to; so the
    device is looked at while it stands still. `before`: words in front of the command."""

    def __init__(self, session: Session, device: Device, name: str, budget: int, seconds: float,
                 variables: dict[str, str] | None = None, before: list[str] | None = None):
        self._device = device
        environment = session.environment() | {"GPUMEM_ACCEPTANCE_BUDGET": str(budget)} | (variables or {})
        command = [*(before or []), session.host_python, "-B", str(SCRIPTS / f"{name}.py")]
        self._process = subprocess.Popen(command, env=environment,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin and self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout
        self._limit = threading.Timer(seconds, self.kill)
        self._limit.start()

    def stages(self) -> list[dict[str, Any]]:
        """The stages that the program reported, each with the device's figures at that moment."""
        said = []
        while (stage := self.next_stage()) is not None:
            said.append(stage | self.look())
            if not self.answer():
                break
        return said

    def next_stage(self) -> dict[str, Any] | None:
        """The next stage; the program then waits. None: the program has ended."""
        for line in self._from:
            if line.startswith('{"stage"'):  # a framework may talk, too
                return dict(json.loads(line))
        return None

    def answer(self, word: str = "") -> bool:
        """Lets it go on. False: it has ended."""
        try:
            self._to.write(word + "\n")
            self._to.flush()
            return True
        except BrokenPipeError:
            return False

    @property
    def pid(self) -> int:
        return self._process.pid

    def look(self) -> dict[str, Any]:
        """The figures of this moment."""
        own = [u.used for u in self._device.processes() if u.pid == self.pid]
        return {"device_used": self._device.memory().used, "named_by_nvml": bool(own),
                "attributed": own[0] if own else None}

    def kill(self) -> None:
        """Its time is over."""
        self._process.kill()

    def end(self) -> int:
        self._limit.cancel()
        with contextlib.suppress(BrokenPipeError):  # an answer may be left that nobody has read
            self._to.close()
        try:
            return self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
