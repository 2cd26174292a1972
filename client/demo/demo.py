#!/usr/bin/env python3
"""Three tenants on one GPU: starts a broker and client processes, shows what holds, measures it.

Runs as root, so that the clients can be processes of different users. Uses the machine's GPU if there is
one, else a simulated machine of two GPUs of 24 GiB.
"""
import argparse
import datetime
import itertools
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from actors import Broker, Client, Failure  # noqa: E402
from screen import Screen, size  # noqa: E402

MIB = 1 << 20
GROUP = 61000
TENANTS = {"alice": 61001, "bob": 61002, "carol": 61003}
CONFIG = """
[broker]
socket_group = 61000
reserve = "RESERVE"

[[tenant]]
name = "alice"
user = 61001
guarantee = "25%"
limit = "50%"

[[tenant]]
name = "bob"
user = 61002
limit = "100%"

[[tenant]]
name = "carol"
user = 61003
guarantee = "10%"
limit = "75%"

[default]
refuse = true
"""


def real_files(count: int, wanted: int, installed: pathlib.Path) -> list[list[pathlib.Path]]:
    """`count` lists of real files found on this system, each of about `wanted` bytes in all. A system that has next
    to nothing still has what is `installed`."""
    found = []
    for root in ("/usr/lib", "/usr/share", "/usr/bin", "/usr/local", installed):
        for folder, _, names in os.walk(root):
            for name in names:
                path = pathlib.Path(folder, name)
                try:
                    status = path.lstat()
                except OSError:
                    continue
                if stat.S_ISREG(status.st_mode) and MIB <= status.st_size <= 40 * MIB and status.st_mode & 0o004:
                    found.append((status.st_size, path))
    found.sort(reverse=True)
    lists: list[list[pathlib.Path]] = [[] for _ in range(count)]
    sums = [0] * count
    for length, path in found:
        least = sums.index(min(sums))
        if sums[least] + length <= wanted * 1.2:
            lists[least].append(path)
            sums[least] += length
        if min(sums) >= wanted:
            break
    return lists


def install(options: argparse.Namespace, prefix: pathlib.Path) -> None:
    """An installation that every user can reach, wherever the checkout or the given one lies."""
    if options.prefix:
        for folder in ("bin", "lib"):
            shutil.copytree(options.prefix / folder, prefix / folder, symlinks=True)
        return
    for component in ([], ["--component", "demo"]):
        subprocess.run(["cmake", "--install", options.build, "--prefix", prefix, "--strip", *component], check=True,
                       stdout=subprocess.DEVNULL)


class Demo:
    """The acts, in order. Each notes what it showed; a failure of one does not hide the others."""

    def __init__(self, screen: Screen, broker: Broker):
        self.screen = screen
        self.broker = broker
        self.results: list[tuple[bool, str, str]] = []

    def note(self, held: bool, what: str, figure: str) -> None:
        self.results.append((held, what, figure))
        self.screen.say(f"   {'ok  ' if held else 'FAIL'} {what}: {figure}")

    def client(self, tenant: str, label: str) -> Client:
        return Client(self.broker, TENANTS[tenant], GROUP, label)

    def tenant(self, name: str) -> dict:
        return next(t for t in self.broker.tenants() if t["tenant"] == name and t["device"] == self.broker.device)

    def run(self) -> None:
        files = real_files(4, 96 * MIB, self.broker.bin.parent)
        clients = self.load(files)
        self.past_the_limit(clients["alice-1"])
        burst = self.burst_and_guarantee(clients)
        self.past_the_broker()
        self.wait_and_give(clients["carol-1"], burst)
        self.wait_and_kill(clients["carol-1"], burst)
        self.read_back(clients)
        self.leave(clients)

    def load(self, files: list[list[pathlib.Path]]) -> dict[str, Client]:
        self.screen.say("1. Four processes of three tenants load real files into their slices")
        names = ["alice-1", "alice-2", "bob-1", "carol-1"]
        clients = {name: self.client(name.split("-")[0], name) for name in names}
        total = 0
        for batch in itertools.zip_longest(*files):
            busy = [(clients[name], path) for name, path in zip(names, batch) if path]
            for client, path in busy:
                client.start(f"load {path}")
            for client, _ in busy:
                total += client.finish()["bytes"]
            self.screen.refresh()
        self.screen.bars()
        there = sum(path.stat().st_size for paths in files for path in paths)
        self.note(0 < total == there, "real files on one GPU", f"{sum(map(len, files))} files, {size(total)}")
        return clients

    def past_the_limit(self, alice: Client) -> None:
        self.screen.say("2. alice asks past her limit")
        answer = alice.ask(f"hold {self.tenant('alice')['limit'] - self.tenant('alice')['charged'] + 2 * MIB} 0")
        self.screen.quote(answer.get("error", ""))
        self.note(not answer["ok"] and answer.get("explained", False), "a request past the limit",
                  f"denied with {answer.get('code', 'nothing')} and the figures")

    def burst_and_guarantee(self, clients: dict[str, Client]) -> Client:
        self.screen.say("3. bob bursts into everything that nobody is promised; alice claims her guarantee meanwhile")
        # Memory outside the pool, such as contexts, is charged to the tenant. It does not change anybody's share of the
        # pool.
        promised = [self.tenant(name) for name in ("alice", "carol")]
        kept = sum(max(0, one["guarantee"] - (one["charged"] - one["outside"])) for one in promised)
        rest = self.broker.status()["free"] - kept
        burst = self.client("bob", "bob-burst")
        piece = rest // 8 // (2 * MIB) * 2 * MIB
        # In several growths, so that there are small extents to give back, too.
        answers = [burst.ask(f"hold {part} 0") for part in [piece] * 7 + [rest - 7 * piece]]
        self.note(all(a["ok"] for a in answers), "burst into unpromised memory",
                  f"{size(rest)} in {len(answers)} growths, {sum(a.get('seconds', 0) for a in answers) * 1e3:.1f} ms")
        alice = self.tenant("alice")
        missing = alice["guarantee"] - alice["charged"]
        answer = clients["alice-2"].ask(f"hold {missing} 0")
        self.note(answer["ok"], "a guarantee claimed while another bursts",
                  f"{size(missing)} in {answer.get('seconds', 0) * 1e3:.1f} ms, without waiting")
        self.screen.bars()
        return burst

    def past_the_broker(self) -> None:
        self.screen.say("4. A process past the broker looks at the driver itself")
        unmanaged = Client.past_broker(self.broker)
        status = self.broker.status()
        left = status["total"] - status["pool"]
        answer = unmanaged.ask(f"peek {status['pool']}")
        unmanaged.end()
        held = answer["ok"] and answer["free"] <= left and not answer["taken"]
        self.note(held, "past the broker only what is left",
                  f"{size(answer.get('free', 0))} of {size(status['total'])} visible; asking for more: {answer.get('error', '')}")

    def has_carol_wait(self, carol: Client, wanted: int) -> None:
        carol.start(f"hold {wanted} 60000")
        deadline = time.monotonic() + 10
        while self.tenant("carol")["waiting"] == 0:
            if time.monotonic() > deadline:
                raise Failure(f"carol does not wait: {carol.finish()}")
            time.sleep(0.01)

    def wait_and_give(self, carol: Client, burst: Client) -> None:
        self.screen.say("5. carol waits for memory; bob, whose burst is larger, is asked, and gives back")
        begun = datetime.datetime.now(datetime.timezone.utc)
        burst.ask("listen")
        self.has_carol_wait(carol, self.broker.status()["pool"] // 4)
        why = self.broker.ask("why", "carol")["waiting"][0]
        self.screen.quote(f"gpumem why carol: {why['words']}")
        self.note(why["asked_back"] > 0 and why["waiters_ahead"] == 0, "a waiting request explained",
                  f"{size(why['asked'])} asked for, {size(why['free'])} free, {size(why['asked_back'])} asked back of borrowers")
        given_at = time.monotonic()
        given = burst.ask("give")
        granted = carol.finish()
        self.note(given["ok"] and granted["ok"], "memory given back when asked",
                  f"{size(given['given'])} for {size(given['asked'])}, in whole extents; "
                  f"granted to carol {(time.monotonic() - given_at) * 1e3:.0f} ms later")
        self.tell_events(begun)
        self.screen.bars()

    def tell_events(self, since: datetime.datetime) -> None:
        """Prints each kind of event in order, once: for extents that came back one at a time, the first."""
        told: list[str] = []
        for event, line in self.broker.events(since):
            if event["kind"] in ("waiting", "pressure", "returned", "freed", "granted") and event["kind"] not in told:
                told.append(event["kind"])
                self.screen.plain(line)
        self.note(told == ["waiting", "pressure", "returned", "freed", "granted"], "events tell of it", ", ".join(told))

    def wait_and_kill(self, carol: Client, burst: Client) -> None:
        self.screen.say("6. carol waits for more; bob's burst is killed with SIGKILL")
        status = self.broker.status()
        self.has_carol_wait(carol, max(status["pool"] // 4, status["free"] + 2 * MIB))
        self.screen.bars()
        killed = time.monotonic()
        burst.kill()
        answer = carol.finish()
        self.note(answer["ok"], "waiting request granted after kill -9 of the holder",
                  f"{(time.monotonic() - killed) * 1e3:.0f} ms after the signal, {size(answer.get('committed', 0))} held")
        self.screen.bars()

    def read_back(self, clients: dict[str, Client]) -> None:
        self.screen.say("7. Everybody reads back what they loaded")
        answers = {name: client.ask("verify") for name, client in clients.items()}
        self.note(all(a["ok"] for a in answers.values()), "checksums equal after all of this",
                  f"{sum(a.get('equal', 0) for a in answers.values())} files")

    def leave(self, clients: dict[str, Client]) -> None:
        self.screen.say("8. All leave")
        for client in clients.values():
            client.end()
        deadline = time.monotonic() + 30
        while (status := self.broker.status())["free"] != status["pool"] and time.monotonic() < deadline:
            time.sleep(0.02)
        self.screen.bars()
        self.note(status["free"] == status["pool"], "all memory proved free again", f"{size(status['free'])} of {size(status['pool'])}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    programs = parser.add_mutually_exclusive_group(required=True)
    programs.add_argument("--build", type=pathlib.Path, help="build folder")
    programs.add_argument("--prefix", type=pathlib.Path, help="installation with the demo's programs, instead")
    driver = parser.add_mutually_exclusive_group()
    driver.add_argument("--simulate", metavar="SPEC", help="simulated GPUs even if there is a real one")
    driver.add_argument("--real", action="store_true", help="the machine's driver, or none")
    parser.add_argument("--reserve", metavar="AMOUNT", default="90%", help="how much the broker owns (default 90%%)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work = pathlib.Path(tempfile.mkdtemp(prefix="gpumem-demo-"))
    work.chmod(0o755)
    real = options.real or pathlib.Path("/dev/nvidiactl").exists()
    spec = options.simulate or (None if real else "2x24GiB")
    try:
        install(options, work / "prefix")
        (work / "gpumemd.toml").write_text(CONFIG.replace("RESERVE", options.reserve))
        with Broker(work, spec) as broker:
            screen = Screen(broker)
            screen.say(f"gpumemd lends {size(broker.status()['pool'])} of {'a simulated' if spec else 'a real'} GPU of "
                       f"{size(broker.status()['total'])} ({broker.driver})")
            demo = Demo(screen, broker)
            demo.run()
    except Failure as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    failed = sum(not held for held, _, _ in demo.results)
    print("\nWhat was shown:")
    for held, what, figure in demo.results:
        print(f"  {'ok  ' if held else 'FAIL'} {what}: {figure}")
    print(f"\n{len(demo.results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
