"""A simulated broker for a bench."""
import contextlib
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

PATIENCE_SECONDS = 60


@contextlib.contextmanager
def running_broker(build: pathlib.Path, runtime: pathlib.Path, *arguments: object) -> Iterator[subprocess.Popen]:
    """Runs the broker of `build` in the folder `runtime` until exit. Returns once it serves. Ends this process if it does not."""
    broker = subprocess.Popen([build / "daemon/gpumemd", "--runtime-dir", runtime, "--log-level", "warning",
                               *map(str, arguments)])
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not serves(runtime):
            if broker.poll() is not None or time.monotonic() > deadline:
                sys.exit("the broker does not start")
            time.sleep(0.01)
        yield broker
    finally:
        broker.terminate()
        broker.wait(PATIENCE_SECONDS)


def serves(runtime: pathlib.Path) -> bool:
    """Whether a broker has said so in the file of its lock."""
    lock = runtime / "private" / "gpumemd.lock"
    return lock.exists() and "\nserving " in lock.read_text()
