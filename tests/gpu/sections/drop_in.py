"""The driver contract once more, through the drop-in driver with a broker behind it. What fails there and not on the driver
itself must be listed in contract_differences.txt.

Suites run side by side, each in a slice of its own; one that crashes or hangs is run again test by test. What fails is then tried
on the driver itself, alone.

data: {tests: [{suite, test, result, why, driver}]}: `result` as in contract.py, `driver` the result on the driver itself, empty where
the test did not fail.
"""
import concurrent.futures
import json
import pathlib
import subprocess
import tempfile
import time
from typing import Any

from broker import Broker
from session import GIB, Outcome, Session, table

from . import contract

NAME = "drop_in"
TITLE = "The driver contract through the drop-in driver"
REQUIRED = False
LIMIT = 120
SUITE_SECONDS, TEST_SECONDS = 40, 15
AT_ONCE = 6
# The other suites are about no memory of the program's own, or look at the device as a whole.
SUITES = ("Access", "Allocation", "Context", "Copies", "Events", "Graphs", "HostMemory", "LegacyIpc", "Lifetime", "Mapping", "Memory",
          "Nvml", "NvmlDevices", "PoolSharing", "Pools", "ProcAddress", "Properties", "Range", "Refusal", "Streams")
SLICE = 2 * GIB


def listed(session: Session) -> set[str]:
    lines = session.layout.differences().read_text(encoding="utf-8").splitlines()
    return {line.strip() for line in lines if line.startswith("  ")}


def run_part(session: Session, part: str, environment: dict[str, str], seconds: float) -> list[dict[str, Any]]:
    """The tests of a filter, in one process. Empty where it crashed or took longer."""
    with tempfile.TemporaryDirectory(dir=session.work) as folder:
        file = pathlib.Path(folder, "found.json")
        try:
            subprocess.run([session.layout.program("driver_contract"), f"--gtest_filter={part}", f"--gtest_output=json:{file}",
                            "--gtest_brief=1"], env=environment, stdout=2, timeout=seconds)
        except subprocess.TimeoutExpired:
            return []
        suites = json.loads(file.read_text())["testsuites"] if file.exists() else []
        return [contract.read(suite["name"], test) for suite in suites for test in suite["testsuite"]]


def run_suite(session: Session, suite: str, tests: list[str], environment: dict[str, str], deadline: float) -> list[dict[str, Any]]:
    def left() -> float:
        return max(1.0, deadline - time.monotonic())

    if found := run_part(session, ":".join(tests), environment, min(SUITE_SECONDS, left())):
        return found
    found = []
    for test in tests:
        found += run_part(session, test, environment, min(TEST_SECONDS, left())) or [
            {"suite": suite, "test": test.partition(".")[2], "result": "failed", "why": "it crashed, or took too long"}]
    return found


def run(session: Session) -> Outcome:
    deadline = time.monotonic() + session.limit - 10
    names = contract.list_tests(session, str(session.layout.program("driver_contract")))
    # The greedy one takes all that a device has: a slice is less.
    suites = {suite: [name for name in names if name.startswith(f"{suite}.") and name != contract.TOO_GREEDY] for suite in SUITES}
    plain = session.environment() | {"GPUMEM_CONTRACT_FIGURES": "own"}
    at_once = 1 if session.simulated else AT_ONCE
    found: list[dict[str, Any]] = []
    with Broker(session, min(session.lendable, 2 * SLICE * at_once)) as broker:
        through = plain | {"GPUMEM_DRIVER_DIR": str(session.layout.shim()), "GPUMEM_RUNTIME_DIR": str(broker.runtime),
                           "GPUMEM_LIMIT": str(SLICE), "GPUMEM_WAIT": "5s"}
        if session.driver_folder:
            through["GPUMEM_REAL_LIBCUDA"] = session.driver_folder
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            for tests in pool.map(lambda suite: run_suite(session, suite, suites[suite], through, deadline), suites):
                found += tests
    for test in found:
        name = f"{test['suite']}.{test['test']}"
        alone = run_part(session, name, plain, TEST_SECONDS) if test["result"] == "failed" else []
        test["driver"] = (alone[0]["result"] if alone else "failed") if test["result"] == "failed" else ""
    return judged(found, listed(session))


def judged(found: list[dict[str, Any]], known: set[str]) -> Outcome:
    outcome = Outcome(data={"tests": [{key: test[key] for key in ("suite", "test", "result", "why", "driver")} for test in found]})
    differ = [test for test in found if test["result"] == "failed" and test["driver"] != "failed"]
    for test in differ:
        if f"{test['suite']}.{test['test']}" not in known:
            outcome.fail(f"{test['suite']}.{test['test']}: {test['why']}"[:300])
    if not any(test["result"] == "passed" for test in found):
        outcome.fail("no test passed")
    count = {result: sum(test["result"] == result for test in found) for result in contract.RESULTS}
    rows = [[f"{test['suite']}.{test['test']}", test["driver"], "yes" if f"{test['suite']}.{test['test']}" in known else "no",
             test["why"]] for test in found if test["result"] == "failed"]
    outcome.tables = [table("Through the drop-in driver", list(count), [list(count.values())]),
                      table("Failed there", ["test", "on the driver itself", "listed", "why"], rows)]
    return outcome
