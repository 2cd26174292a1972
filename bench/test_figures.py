"""The figures that a test of the project tells."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def figures_of(program: pathlib.Path, test: str, environment: dict[str, object], needed: str) -> dict[str, str]:
    """Runs `test` of a GoogleTest `program` with `environment` added to this process's. Returns what it recorded, as text.
    Ends this process, with what the test said, if it fails, or if the figure `needed` is not there: it was skipped."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        done = subprocess.run([program, f"--gtest_filter={test}", f"--gtest_output=json:{report.name}"],
                              env={**os.environ, **{name: str(value) for name, value in environment.items()}},
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        figures = json.loads(pathlib.Path(report.name).read_text())["testsuites"][0]["testsuite"][0]
    if needed not in figures:
        sys.exit(done.stdout + "the test was skipped")
    return figures
