"""A process of a framework, for the tests of regions that it uses in place: what its program says, line by line."""
import json
import os
import pathlib
import subprocess


class FrameworkProcess:
    """The program, by the Python that has the framework, until the end of the `with`."""

    def __init__(self, program: pathlib.Path, *words: object, **environment: str):
        self._process = subprocess.Popen([os.environ["COEXISTENCE_PYTHON"], program, *map(str, words)],
                                         env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True)

    def hear(self) -> dict:
        line = self._process.stdout.readline()
        assert line, f"the program ended with {self._process.wait()}"
        return json.loads(line)

    def say(self, line: str) -> dict:
        """What it answers."""
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.hear()

    def __enter__(self) -> "FrameworkProcess":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._process.stdin.close()
        if kind is not None:
            self._process.kill()
        assert self._process.wait() == 0 or kind is not None
