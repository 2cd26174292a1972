"""Processes that say what they do as JSON, one object a line."""
import collections.abc
import contextlib
import json
import pathlib
import subprocess
import threading
import time
from typing import Any

from reused import Failure

PATIENCE_SECONDS = 60
Line = dict[str, Any]


class Speaker:
    """A process and every line it has said. `log` takes what it says to stderr."""

    def __init__(self, label: str, command: list[str], log: pathlib.Path, **options: Any):
        self.label = label
        self._log = log
        self._lines: list[Line] = []
        self._news = threading.Condition()
        self._silent = False
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, **options)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for text in self.process.stdout:
            line = json.loads(text)
            with self._news:
                self._lines.append(line)
                self._news.notify_all()
        with self._news:
            self._silent = True
            self._news.notify_all()

    def said(self) -> list[Line]:
        with self._news:
            return list(self._lines)

    def await_line(self, what: str, wanted: collections.abc.Callable[[Line], bool], start: int = 0) -> Line:
        """The first wanted line from number `start` on, as soon as it is there. In a failure, `what` names the line."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._news:
            while True:
                for line in self._lines[start:]:
                    if wanted(line):
                        return line
                start = max(start, len(self._lines))
                left = deadline - time.monotonic()
                if self._silent or left <= 0 or not self._news.wait(left) and not self._silent:
                    raise Failure(f"{self.label} never said: {what}\n{self._log.read_text(errors='replace')}")

    def tell(self, command: str) -> int:
        """Sends a line; answers the number that the next line it says will have."""
        start = len(self.said())
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure(f"{self.label} is gone; it was to be told: {command}") from None
        return start

    def wait(self) -> int:
        """Its exit status, once it has ended and all that it said is here."""
        status = self.process.wait(PATIENCE_SECONDS)
        self._thread.join(PATIENCE_SECONDS)
        return status

    def end(self) -> None:
        """However it is: afterwards the process is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        with contextlib.suppress(BrokenPipeError):  # what was not read any more
            self.process.stdin.close()
