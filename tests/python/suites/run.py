"""Runs the suite of $GPUMEM_SUITE with pytest. More arguments go to pytest, as `-k NAME`."""
import importlib
import os
import pathlib
import sys
import tomllib

import pytest


def main() -> int:
    suite = tomllib.loads(pathlib.Path(os.environ["GPUMEM_SUITE"]).read_text(encoding="utf-8"))
    cache = pathlib.Path(os.environ["GPUMEM_SUITE_CACHE"])
    # Their packages, before those of the clients; children look there, too.
    packages = [str(cache / "python-suites" / folder) for folder in suite.get("packages", [])]
    sys.path[:0] = packages
    os.environ["PYTHONPATH"] = os.pathsep.join([*packages, os.environ["PYTHONPATH"]])
    (tests,) = cache.glob(suite["tests"])  # a name may differ with Python's version
    os.chdir(tests)
    for module in suite.get("first", []):  # what must be there before pytest imports the tests by their place
        importlib.import_module(module)
    return pytest.main(["-q", "-p", "expected", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tests),
                        *suite.get("options", []), *sys.argv[1:], *suite["files"]])


if __name__ == "__main__":  # not in the processes that tests spawn
    sys.exit(main())
