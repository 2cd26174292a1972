"""The fixtures of the tests with Prometheus: its programs, a broker to scrape, and the answers of its API."""
import argparse
import collections.abc
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import time
import typing
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
PATIENCE_SECONDS = 60


@dataclasses.dataclass
class Arguments:
    build: pathlib.Path
    programs: pathlib.Path


def arguments(test: str) -> Arguments:
    """Ends the test as skipped where there is no Prometheus."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--prometheus", type=pathlib.Path, required=True)
    given = parser.parse_args()
    programs = given.prometheus / "usr/bin"
    if not (programs / "prometheus").exists():
        print(f"gpumem: skipped: {test}: there is no Prometheus in {given.prometheus}: run tests/monitoring/set_up.sh")
        sys.exit(SKIPPED)
    return Arguments(given.build.resolve(), programs.resolve())


def until(what: str, condition: collections.abc.Callable[[], typing.Any]) -> typing.Any:
    """Asks again and again until the answer is true, and returns it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"never came true: {what}")
        time.sleep(0.05)
    return answer


class Program:
    """A process whose output goes to a file; it ends with the test."""

    def __init__(self, words: list[typing.Any], log: pathlib.Path, **more: typing.Any):
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=output,
                                             stderr=subprocess.STDOUT, **more)

    def said(self, pattern: str, after: int = 0) -> re.Match[str] | None:
        """The first such words behind the first `after` bytes of the log."""
        assert self._process.poll() is None, f"it has ended:\n{self.log.read_text()}"
        return re.search(pattern, self.log.read_text()[after:])

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Api:
    """The API of a Prometheus at `address`."""

    def __init__(self, address: str):
        self._base = f"http://{address}/api/v1/"

    def get(self, path: str, **query: str) -> typing.Any:
        """The answer's data; nothing, while there is none."""
        try:
            with urllib.request.urlopen(f"{self._base}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
                return json.load(answer)["data"]
        except (urllib.error.URLError, ConnectionError):
            return None

    def value(self, expression: str) -> float | None:
        """Of an expression with one result; nothing, if there are none or several."""
        data = self.get("query", query=expression)
        found = data["result"] if data else []
        return float(found[0]["value"][1]) if len(found) == 1 else None
