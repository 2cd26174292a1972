"""Processes of the cluster, each with a log, and waiting for what they do."""
from __future__ import annotations

import collections.abc
import os
import pathlib
import subprocess
import time
import typing

PATIENCE_SECONDS = 300


class Failed(Exception):
    """A case or the cluster did not do what it should; the words say what."""


class Skipped(Exception):
    """A case needs something that is not there; the words say what."""


class Process:
    """A program that runs until the namespaces end. Its output is in `log`."""

    def __init__(self, words: list[object], log: pathlib.Path, environment: dict[str, str] | None = None) -> None:
        self.name = pathlib.Path(str(words[0])).name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=output,
                                             stderr=subprocess.STDOUT, env=os.environ | (environment or {}))

    def check(self) -> None:
        """Errors: Failed, with the end of its log, if it has ended."""
        if self._process.poll() is not None:
            raise Failed(f"{self.name} has ended with status {self._process.returncode}:\n{tail(self.log)}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def tail(log: pathlib.Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"


def until(what: str, condition: collections.abc.Callable[[], typing.Any], processes: typing.Iterable[Process] = (),
          seconds: float = PATIENCE_SECONDS) -> typing.Any:
    """Asks again and again until the answer is true, and returns it. Errors: Failed (time is up; a process has ended)."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        for process in processes:
            process.check()
        if time.monotonic() > deadline:
            raise Failed(f"in vain awaited: {what}")
        time.sleep(0.2)
    return answer
