"""The driver contract, test by test; what its probes recorded."""
import json
import pathlib
import subprocess
import tempfile
import time

import assumptions
from nvml import Nvml
from session import GIB, MIB, Outcome, Session, table

NAME = "contract"
TITLE = "The driver contract and its probes"
REQUIRED = True
LIMIT = 200
TEST_SECONDS = 15
# What the broker stands on. The probes are asked in any case, too; the other suites as long as there is time.
CORE = ("Driver", "Allocation", "Lifetime", "Mapping", "Nvml")
# These take the whole device, which is not ours alone.
TOO_GREEDY = "Allocation.OfWhatOthersHaveIsResourceExhaustedUntilTheyLetGo"
# The questions that every run must answer, each with a part of the test's name.
ASKED = {"memory goes on when its exporter is killed (kill -9)": "WhenTheExporterIsKilled",
         "a killed process (kill -9) gives back all it held": "KilledProcess",
         "a descriptor alone keeps memory, where no driver was ever started": "KeptByADescriptor",
         "fresh memory reads as zero, whatever another process wrote there": "ReadsAsZero",
         "NVML names the process that has a context": "NamesItsProcess"}
RESULTS = ("passed", "failed", "skipped")
# The property under which a probe records its answers.
ANSWER = "answer"
# Keys of a test in GoogleTest's JSON that are not properties which the test recorded.
OWN_KEYS = {"name", "file", "line", "status", "result", "timestamp", "time", "classname", "failures", "skipped",
            "type_param", "value_param"}


def is_core(name: str) -> bool:
    suite = name.partition(".")[0]
    return suite in CORE or suite.endswith("Probe")


def list_tests(session: Session) -> list[str]:
    """`Suite.Test`, those first that must not be missed."""
    listed = subprocess.run([session.layout.program("driver_contract"), "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    names, suite = [], ""
    for line in listed.splitlines():
        word = line.split("#")[0].strip()
        if not line.startswith(" "):
            suite = word if word.endswith(".") else ""
        elif suite and (session.simulated or suite + word != TOO_GREEDY):
            names.append(suite + word)
    return sorted(names, key=lambda name: not is_core(name))


def run_filter(session: Session, chosen: str, environment: dict[str, str], seconds: float) -> tuple[list[dict], str]:
    """The tests of a filter, in one process, and how that ended. No tests where it crashed or took longer."""
    with tempfile.TemporaryDirectory(dir=session.work) as folder:
        file = pathlib.Path(folder, "found.json")
        try:
            ended = subprocess.run([session.layout.program("driver_contract"), f"--gtest_filter={chosen}",
                                    f"--gtest_output=json:{file}", "--gtest_brief=1"],
                                   env=environment, stdout=2, timeout=seconds)
            why = f"ended with status {ended.returncode}"
        except subprocess.TimeoutExpired:
            why = f"took longer than {seconds:.0f} s"
        suites = json.loads(file.read_text())["testsuites"] if file.exists() else []
    return [read(suite["name"], test) for suite in suites for test in suite["testsuite"]], why


def run_test(session: Session, name: str, environment: dict[str, str], seconds: float) -> dict:
    """One test in a run of its own: one that hangs or crashes is one failed test."""
    started = time.monotonic()
    found, why = run_filter(session, name, environment, seconds)
    if found:
        return found[0]
    suite, test = name.split(".", 1)
    return {"suite": suite, "test": test, "seconds": round(time.monotonic() - started, 3), "result": "failed", "why": why,
            "properties": {}}


def name_of(test: dict) -> str:
    return f"{test['suite']}.{test['test']}"


def environment(session: Session) -> dict[str, str]:
    """Both GPUs, if there are two; probes write and read all of their budget, so it is a small one."""
    budget = min(session.lendable, 64 * MIB if session.simulated else 4 * GIB)
    return session.environment(only_device=False) | {"GPUMEM_ACCEPTANCE_BUDGET": str(budget)}


def read(suite: str, test: dict) -> dict:
    failures = [f["failure"] for f in test.get("failures", [])]
    skipped = test["result"] == "SKIPPED"
    return {"suite": suite, "test": test["name"], "seconds": float(test["time"].rstrip("s")),
            "result": "skipped" if skipped else "failed" if failures else "passed",
            "why": " / ".join(failures or [s.get("message", "") for s in test.get("skipped", [])]),
            "properties": {k: v for k, v in test.items() if k not in OWN_KEYS}}


def run(session: Session) -> Outcome:
    deadline = time.monotonic() + session.limit - 5
    tests, no_time = [], []
    for name in list_tests(session):
        left = deadline - time.monotonic()
        if left > 1:
            tests.append(run_test(session, name, environment(session), min(TEST_SECONDS, left)))
        else:
            no_time.append(name)
    with Nvml(session.driver_folder) as nvml:
        mode = nvml.device(session.device).persistence_mode() or "not told"
    outcome = Outcome(data={"tests": tests, "left_out": [] if session.simulated else [TOO_GREEDY], "no_time": no_time,
                            "persistence_mode": mode})
    judge(outcome, session.simulated)
    return outcome


def judge(outcome: Outcome, simulated: bool) -> None:
    tests, no_time = outcome.data["tests"], outcome.data["no_time"]
    names = {result: [name_of(t) for t in tests if t["result"] == result] for result in RESULTS}
    outcome.data["asked"] = {what: any(part in name for name in names["passed"]) for what, part in ASKED.items()}
    outcome.data["answers"] = answers(tests, outcome)
    outcome.tables = tables(tests, outcome.data)
    if failed := names["failed"]:
        outcome.fail(f"{len(failed)} of {len(tests)} tests failed: {', '.join(failed[:5])}{', ...' if len(failed) > 5 else ''}")
    for what, shown in outcome.data["asked"].items():
        if not shown:
            outcome.fail(f"not shown: {what}")
    if missed := [name for name in no_time if is_core(name)]:
        outcome.fail(f"no time was left for {len(missed)} tests of what the broker stands on")
    elif no_time and not simulated:
        outcome.fail(f"no time was left for {len(no_time)} tests past the broker's needs")
    elif no_time:
        outcome.why = "; ".join(filter(None, [outcome.why, f"no time was left for {len(no_time)} tests past the broker's needs"]))


def answers(tests: list[dict], outcome: Outcome) -> list[dict]:
    """The answers that tests recorded, next to the assumptions."""
    found = []
    for test in tests:
        name = name_of(test)
        parts = [part for key, value in test["properties"].items()
                 for part in (assumptions.answers_of(value) if key == ANSWER else [(key, str(value))])]
        for question, seen in parts:
            assumed = assumptions.find(name, question)
            found.append({"test": name, "question": question, "answer": seen, "assumed": assumed.text if assumed else ""})
            if assumed and not assumed.holds(seen):
                outcome.differs(f"{name}: {question}", assumed.text, seen)
    return found


def tables(tests: list[dict], data: dict) -> list[dict]:
    counts = [[suite, *(sum(t["suite"] == suite and t["result"] == result for t in tests)
                        for result in RESULTS)] for suite in dict.fromkeys(t["suite"] for t in tests)]
    others = [[name_of(t), t["result"], t["why"]] for t in tests if t["result"] != "passed"]
    return [table(f"Shown, with persistence mode {data['persistence_mode']}", ["what", ""],
                  [[what, "yes" if shown else "no"] for what, shown in data["asked"].items()]),
            table("What the tests recorded", ["test", "question", "answer", "assumed"],
                  [list(answer.values()) for answer in data["answers"]]),
            table("Tests", ["suite", "passed", "failed", "skipped"], counts),
            table("Failed or skipped", ["test", "", "why"], others),
            table("No time was left for", ["test"], [[name] for name in data["no_time"]])]
