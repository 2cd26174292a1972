"""The processes of the demo: the broker and its clients."""
import datetime
import json
import os
import pathlib
import select
import signal
import subprocess
import time


class Failure(Exception):
    """The demo cannot go on; the text says why."""


class Broker:
    """A gpumemd with its folder, from enter to exit."""

    def __init__(self, work: pathlib.Path, simulate: str | None):
        self.bin = work / "prefix" / "bin"
        self.runtime = work / "run"
        self.log = work / "gpumemd.log"
        self.command = [self.bin / "gpumemd", "--config", work / "gpumemd.toml", "--runtime-dir", self.runtime]
        if simulate:
            self.command += ["--simulate", simulate]
        self.device = ""
        self.driver = ""

    def __enter__(self) -> "Broker":
        self.process = subprocess.Popen(self.command, stderr=self.log.open("w"))
        deadline = time.monotonic() + 60
        while subprocess.run([self.bin / "gpumem", "--runtime-dir", self.runtime, "status"], capture_output=True).returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise Failure(f"the broker did not start:\n{self.log.read_text()}")
            time.sleep(0.05)
        everything = self.ask("status")
        self.device = everything["devices"][0]["uuid"]
        self.driver = everything["driver"]
        return self

    def __exit__(self, *_) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def say(self, *words: str) -> str:
        """What the command `gpumem` prints."""
        answer = subprocess.run([self.bin / "gpumem", "--runtime-dir", self.runtime, *words], capture_output=True, text=True)
        if answer.returncode:
            raise Failure(f"gpumem {' '.join(words)}: {answer.stderr}{self.log.read_text()}")
        return answer.stdout

    def ask(self, *words: str) -> dict:
        return json.loads(self.say(*words, "--json"))

    def events(self, since: datetime.datetime) -> list[tuple[dict, str]]:
        """Each event since then, and its line as people are shown it."""
        words = ["events", "--no-follow", "--since", since.isoformat()]
        found = [json.loads(line) for line in self.say(*words, "--json").splitlines()]
        return list(zip(found, self.say(*words).splitlines()))

    def status(self) -> dict:
        """Of the device that the demo uses."""
        return next(d for d in self.ask("status")["devices"] if d["uuid"] == self.device)

    def tenants(self) -> list[dict]:
        return self.ask("tenants")["tenants"]


class Client:
    """One gpumem-demo-client process. `start` and `finish` are the halves of `ask`."""

    def __init__(self, broker: Broker, uid: int, gid: int, label: str, arguments: list[str] | None = None):
        self.label = label
        self.process = subprocess.Popen(
            [broker.bin / "gpumem-demo-client", *(arguments or [label])], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, user=uid, group=gid, extra_groups=[],
            env={**os.environ, "GPUMEM_RUNTIME_DIR": str(broker.runtime)})
        ready = self.finish()
        if not ready["ok"]:
            raise Failure(f"{label}: {ready['error']}")

    @classmethod
    def past_broker(cls, broker: Broker) -> "Client":
        """Uses the broker's driver directly, as a program would that knows nothing of it."""
        driver = broker.runtime / "driver"
        return cls(broker, 61009, 61009, "unmanaged", ["--past-broker", str(driver) if driver.exists() else ""])

    def start(self, command: str) -> None:
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def finish(self) -> dict:
        if not select.select([self.process.stdout], [], [], 120)[0]:
            raise Failure(f"{self.label} does not answer")
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"{self.label} ended with status {self.process.wait()}")
        return json.loads(line)

    def ask(self, command: str) -> dict:
        self.start(command)
        return self.finish()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait(60)
