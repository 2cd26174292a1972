"""A pytest plugin: runs a suite that others wrote, and holds every outcome against what SUITE.toml lists.

`GPUMEM_SUITE` names that file, `GPUMEM_SUITE_UNDER` says whose driver it is: `driver` or `shim`. A listed pattern is a
test's id as pytest prints it, in which `*` stands for anything. The tables:

    left_out   is not run: it would end the process, or needs what is not here
    fails      runs and must fail
    skips      runs and must skip itself

Tests in none of the lists must pass. A listed test with another result is an error, and so is a pattern without a test.
"""
import os
import pathlib
import re
import tomllib

import pytest


class Entry:
    def __init__(self, kind: str, pattern: str, why: str):
        self.kind, self.pattern, self.why, self.seen = kind, pattern, why, False
        self._match = re.compile(".*".join(map(re.escape, pattern.split("*")))).fullmatch

    def matches(self, test: str) -> bool:
        return self._match(test) is not None


def entries(content: dict, under: str) -> list[Entry]:
    return [
        Entry(kind, pattern, table["why"])
        for kind in ("left_out", "fails", "skips")
        for table in content.get(kind, [])
        if table.get("under", under) == under
        for pattern in table["tests"]
    ]


class Expected:
    def __init__(self, listed: list[Entry]):
        self._listed = listed
        self._of: dict[str, Entry] = {}
        self._wrong: list[str] = []

    def entry(self, test: str) -> Entry | None:
        """The first entry that matches; every entry that does counts as used."""
        matching = [entry for entry in self._listed if entry.matches(test)]
        for entry in matching:
            entry.seen = True
        return matching[0] if matching else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = []
        for item in items:
            entry = self.entry(item.nodeid)
            if entry is None:
                continue
            self._of[item.nodeid] = entry
            if entry.kind == "left_out":
                left_out.append(item)
            elif entry.kind == "fails":
                item.add_marker(pytest.mark.xfail(reason=entry.why, strict=True))
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        self._wrong += [f"{entry.kind}: no test is {entry.pattern}" for entry in self._listed if not entry.seen]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped and not ((entry := self.entry(report.nodeid)) and entry.kind == "skips"):
            self._wrong.append(f"{report.nodeid} skips itself as a whole: {reason(report)}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        report = yield
        entry = self._of.get(item.nodeid)
        skips = entry is not None and entry.kind == "skips"
        if report.skipped and not hasattr(report, "wasxfail") and not skips:
            report.outcome, report.longrepr = "failed", f"skipped itself, and is not listed: {reason(report)}"
        elif report.when == "call" and report.passed and skips:
            report.outcome, report.longrepr = "failed", f"is listed to skip itself, and ran: {entry.why}"
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._wrong and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter) -> None:
        for line in self._wrong:
            terminalreporter.write_line(f"ERROR {line}")


def reason(report) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """The fixture of numba-cuda's own conftest.py, which its package does not contain."""
    request.cls._dump_failed_filechecks = False


def pytest_itemcollected(item: pytest.Item) -> None:
    """numba-cuda gives a process 4 seconds to start, import it and answer: too few beside other tests."""
    module = getattr(item, "module", None)
    if hasattr(module, "FUTURE_TIMEOUT"):
        module.FUTURE_TIMEOUT = 60


def pytest_configure(config: pytest.Config) -> None:
    content = tomllib.loads(pathlib.Path(os.environ["GPUMEM_SUITE"]).read_text(encoding="utf-8"))
    config.pluginmanager.register(Expected(entries(content, os.environ["GPUMEM_SUITE_UNDER"])), "gpumem-expected")
