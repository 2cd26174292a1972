"""The page of `gpumem web` in a browser: hostile names, the console, accessibility, another origin, the next broker."""
import argparse
import contextlib
import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import browser
from browser import until

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
GROUP = 61000
GIB = 1 << 30
SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
JOB = "</script><i>nightly</i>"
# By user: a tenant, and what its process is called, how it is labelled, and how much it wants.
BORROWERS = [(61001, "vision", "python3", f"train {SCRIPT}", 7 * GIB), (61001, "vision", "=cmd|' /C calc'", "", GIB // 2),
             (61002, IMAGE, "<b>bold</b>", "W" * 128, 5 * GIB + GIB // 4), (61003, "speech", "\u202egnp.exe", "notebook", 2 * GIB),
             (61004, "search", "indexer", "waits", 12 * GIB)]
LIMITS = {"vision": "12GiB", IMAGE: "8GiB", "speech": "6GiB", "search": "16GiB"}
SHAPES = {"light": ("light", 1280, 1000), "dark": ("dark", 1280, 1000), "narrow": ("dark", 390, 844)}


def config() -> str:
    text = f'[broker]\nreserve = "20GiB"\nsocket_group = {GROUP}\n'
    for user, name in {user: name for user, name, *_ in BORROWERS}.items():
        text += f'[[tenant]]\nname = "{name}"\nuser = {user}\nlimit = "{LIMITS[name]}"\n'
    return text


class Stage:
    """A broker with borrowers, and a `gpumem web`; they end with it."""

    def __init__(self, build: pathlib.Path, work: pathlib.Path, ends: contextlib.ExitStack, pause: float):
        self.build, self.work, self.ends = build, work, ends
        (work / "gpumemd.toml").write_text(config())
        self.broker = self.start_broker()
        job = self.make_job(BORROWERS[0][0])
        self.start("web", [build / "client/cli/gpumem", "web", "--runtime-dir", work / "run", "--listen", "127.0.0.1:0",
                           "--as-administrator"])
        for i, (user, _, command, label, size) in enumerate(BORROWERS):
            self.borrow(f"borrower-{i}", user, [command, label, size], job if i == 0 else "0")
            until("it has memory, or waits", lambda i=i: self.said(f"borrower-{i}", "holds" if i < len(BORROWERS) - 1 else "asks"))
            time.sleep(pause)
        self.address = until("the page is served", lambda: self.said("web", r"(http://127\.0\.0\.1:\d+/)#token=\w+"))
        self.origin = self.address[1]

    def start(self, name: str, words: list[Any], **more: Any) -> subprocess.Popen:
        with (self.work / f"{name}.log").open("wb") as log:
            process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log, **{"stdin": subprocess.DEVNULL} | more)
        self.ends.callback(process.wait, browser.PATIENCE_SECONDS)
        self.ends.callback(process.terminate)
        return process

    def said(self, name: str, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, (self.work / f"{name}.log").read_text())

    def start_broker(self) -> subprocess.Popen:
        broker = self.start("broker", [self.build / "daemon/gpumemd", "--simulate", "1x24GiB", "--runtime-dir", self.work / "run", "--config",
                                       self.work / "gpumemd.toml"])
        until("the broker serves", lambda: self.said("broker", "serving on"))
        return broker

    def make_job(self, user: int) -> str:
        gpumem = [self.build / "client/cli/gpumem", "--runtime-dir", self.work / "run"]
        made = subprocess.run([*gpumem, "job", "create", "--limit", "8GiB", "--name", JOB], user=user, group=GROUP, extra_groups=[GROUP],
                              check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        sessions = json.loads(subprocess.run([*gpumem, "ps", "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout)["sessions"]
        self.ends.callback(os.kill, next(one["pid"] for one in sessions if one["command"] == "gpumem"), signal.SIGTERM)
        return made

    def borrow(self, name: str, user: int, names_and_size: list[Any], job: str) -> None:
        environment = os.environ | {"GPUMEM_RUNTIME_DIR": str(self.work / "run"), "PYTHONPATH": str(ROOT / "client/python/src"),
                                    "GPUMEM_LIBRARY": str(self.build / "client/libgpumem.so.0"), "PYTHONDONTWRITEBYTECODE": "1", "GPUMEM_JOB": job}
        self.start(name, ["/usr/bin/python3", ROOT / "tests/web/borrower.py", *names_and_size], env=environment,
                   stdin=subprocess.PIPE, user=user, group=GROUP, extra_groups=[GROUP])


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def check_names(tab: Any) -> None:
    until("all rows are shown", lambda: tab.value("document.querySelectorAll('#holders tbody tr').length") >= 9)
    until("a request waits", lambda: "gpumem why" in tab.value("document.querySelector('#waiting').textContent"))
    text = tab.value("document.body.textContent")
    for name in (SCRIPT, IMAGE, JOB, "<b>bold</b>", "W" * 128, "???gnp.exe", "=cmd|' /C calc'"):
        assert name in text, f"{name} is not shown"
    assert "\u202e" not in text, "a mark of direction is shown as it is"
    assert tab.value("document.querySelectorAll('img, b, i, main script, iframe').length") == 0
    assert tab.value("document.scripts.length") == 2
    assert tab.value("""view.sample.rows.filter(row => row.extents && row.charged).length === 4 && view.sample.rows.every(row => !row.extents ||
      row.extents.reduce((sum, one) => sum + one.size * one.count, 0) === row.charged)"""), "extents do not add up"
    assert tab.value("Object.keys(charts).length") == 3, "charts are not drawn"


def check_accessibility(tab: Any, axe: str, shape: str) -> None:
    if not tab.value("typeof axe === 'object'"):
        tab.call("Runtime.evaluate", expression=axe)
    found = tab.value("axe.run().then(found => found.violations.map(one => [one.impact, one.id, one.nodes.slice(0, 3).map(node => node.html + node.failureSummary)]))")
    serious = [one for one in found if one[0] in ("serious", "critical")]
    assert not serious, f"{shape}: {serious}"
    wide = tab.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{shape}: the page is {wide} pixels wider than the screen"


def check_download(tab: Any, folder: pathlib.Path) -> None:
    tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    tab.value("$('ask').click()")
    until("accounts are shown", lambda: not tab.value("$('download').disabled"))
    tab.value("$('download').click()")
    file = folder / "gpumem-accounts.csv"
    until("the file is there", lambda: file.exists() and file.stat().st_size)
    text = file.read_text()
    assert text.startswith("tenant,device,charged,kept,waiting\n") and f'"{IMAGE}","gpu0",' in text, text


def check_long_life(tab: Any) -> None:
    """What ten hours bring is not kept."""
    tab.value("""for (let i = 0; i < 36000; ++i) {
      add_point([i * 5, [[['vision', 1]]]]);
      if (i % 10 === 0) add_events([{time_ms: i, kind: 'denied', tenant: 'x', words: ''}]);
    }""")
    assert tab.value("view.points.length") == 720 and tab.value("view.events.length") == 500


def check_next_broker(tab: Any, stage: Stage) -> None:
    stage.broker.kill()
    stage.broker.wait()
    until("the page says so", lambda: "trying again" in tab.value("$('state').textContent"))
    stage.start_broker()
    until("the page goes on", lambda: tab.value("$('state').textContent") == "live")


def check_foreign_origin(tab: Any, stage: Stage, folder: pathlib.Path) -> None:
    """A page of another port has the token, and still gets nothing."""
    (folder / "index.html").write_text("<!DOCTYPE html><title>foreign</title>")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab.open(f"http://127.0.0.1:{server.server_port}/")
        token = stage.address[0].split("token=")[1]
        for options in ("{}", f"{{headers: {{'X-Gpumem-Token': '{token}'}}}}"):
            got = tab.value(f"fetch('{stage.origin}api/stream', {options}).then(() => 'read', () => 'refused')")
            assert got == "refused", f"a foreign origin reads, with {options}"
        opaque = tab.value(f"fetch('{stage.origin}api/accounts', {{mode: 'no-cors'}}).then(one => one.type, () => 'refused')")
        assert opaque == "refused", "a foreign origin has it delivered"
        server.shutdown()


def check(options: argparse.Namespace, work: pathlib.Path, axe: str) -> None:
    with contextlib.ExitStack() as ends:
        stage = Stage(options.build.resolve(), work, ends, pause=15 if options.pictures else 0)
        (work / "profile").mkdir()
        tab = ends.enter_context(browser.Browser(work / "profile"))
        tab.show(*SHAPES["light"])
        tab.open(stage.address[0])
        check_names(tab)
        for shape, how in SHAPES.items():
            tab.show(*how)
            check_accessibility(tab, axe, shape)
            if options.pictures:
                tab.picture(options.pictures / f"web-{shape}.png")
        check_download(tab, work)
        assert not tab.faults, "\n".join(tab.faults)
        check_next_broker(tab, stage)
        check_long_life(tab)
        assert not tab.faults, "\n".join(tab.faults)
        check_foreign_origin(tab, stage, work)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--packages", type=pathlib.Path, required=True)
    parser.add_argument("--pictures", type=pathlib.Path)
    options = parser.parse_args()
    packages = next(iter(options.packages.glob("lib/python3*/site-packages")), None)
    lacks = [] if shutil.which("chromium") else ["Chromium"]
    lacks += [] if packages else [str(options.packages)]
    if lacks:
        print(f"gpumem: skipped: web.page: there is no {' and no '.join(lacks)}: ./dev test long brings it")
        return SKIPPED
    if os.geteuid() != 0:
        print("gpumem: skipped: web.page: several tenants are several users: only root can start their processes")
        return SKIPPED
    sys.path.insert(0, str(packages))
    axe = (packages / "axe_playwright_python/axe.min.js").read_text()
    with tempfile.TemporaryDirectory(prefix="gpumem-web-") as work:
        pathlib.Path(work).chmod(0o755)
        check(options, pathlib.Path(work), axe)
    print("the page holds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
