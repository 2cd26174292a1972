"""The driver contract once more, through the drop-in driver with a broker behind it. Tests that fail there, but not on
the driver itself, must be listed in contract_differences.txt.

Suites run side by side, each in a slice of its own; one that crashes or hangs is run again test by test. Failed tests
are then run on the driver itself, alone.

data: {tests: [{suite, test, result, why, driver}]}: `result` as in contract.py, `driver` the result on the driver itself, empty where
the test did not fail.
"""
import concurrent.futures
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
# Left out are suites that use no memory of their own, or that look at the device as a whole.
SUITES = ("Access", "Allocation", "Context", "Copies", "Events", "Graphs", "HostMemory", "LegacyIpc", "Lifetime", "Mapping", "Memory",
          "Nvml", "NvmlDevices", "PoolSharing", "Pools", "ProcAddress", "Properties", "Range", "Refusal", "Streams")
SLICE = 2 * GIB


def listed(session: Session) -> set[str]:
    lines = session.layout.differences().read_text(encoding="utf-8").splitlines()
    return {line.strip() for line in lines if line.startswith("  ")}


def run_suite(session: Session, tests: list[str], environment: dict[str, str], deadline: float) -> list[dict[str, Any]]:
    def at_most(seconds: float) -> float:
        return min(seconds, max(1.0, deadline - time.monotonic()))

    found, _ = contract.run_filter(session, ":".join(tests), environment, at_most(SUITE_SECONDS))
    return found or [contract.run_test(session, test, environment, at_most(TEST_SECONDS)) for test in tests]


def run(session: Session) -> Outcome:
    deadline = time.monotonic() + session.limit - 10
    # The greedy one takes all that a device has: a slice is less.
    names = [name for name in contract.list_tests(session) if name != contract.TOO_GREEDY]
    suites = [[name for name in names if name.startswith(f"{suite}.")] for suite in SUITES]
    plain = session.environment() | {"GPUMEM_CONTRACT_FIGURES": "own"}
    at_once = 1 if session.simulated else AT_ONCE
    with Broker(session, min(session.lendable, 2 * SLICE * at_once)) as broker:
        through = plain | {"GPUMEM_DRIVER_DIR": str(session.layout.shim()), "GPUMEM_RUNTIME_DIR": str(broker.runtime),
                           "GPUMEM_LIMIT": str(SLICE), "GPUMEM_WAIT": "5s"}
        if session.driver_folder:
            through["GPUMEM_REAL_LIBCUDA"] = session.driver_folder
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            found = [test for tests in pool.map(lambda tests: run_suite(session, tests, through, deadline), suites)
                     for test in tests]
    for test in found:
        failed = test["result"] == "failed"
        test["driver"] = contract.run_test(session, contract.name_of(test), plain, TEST_SECONDS)["result"] if failed else ""
    return judged(found, listed(session))


def judged(found: list[dict[str, Any]], known: set[str]) -> Outcome:
    outcome = Outcome(data={"tests": [{key: test[key] for key in ("suite", "test", "result", "why", "driver")} for test in found]})
    failed = [test for test in found if test["result"] == "failed"]
    for test in failed:
        if test["driver"] != "failed" and contract.name_of(test) not in known:
            outcome.fail(f"{contract.name_of(test)}: {test['why']}"[:300])
    if not any(test["result"] == "passed" for test in found):
        outcome.fail("no test passed")
    count = {result: sum(test["result"] == result for test in found) for result in contract.RESULTS}
    rows = [[contract.name_of(test), test["driver"], "yes" if contract.name_of(test) in known else "no", test["why"]]
            for test in failed]
    outcome.tables = [table("Through the drop-in driver", list(count), [list(count.values())]),
                      table("Failed there", ["test", "on the driver itself", "listed", "why"], rows)]
    return outcome
