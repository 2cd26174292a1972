"""The stage of a scenario: brokers on simulated devices, actors of several users, and checks of their behaviour."""
import argparse
import collections.abc
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from typing import Any

import history
from lines import PATIENCE_SECONDS, Line, Speaker
from reused import Broker, Failure

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
GIB = 1 << 30
GROUP = 61000
USERS = {"ann": 61001, "bob": 61002, "carol": 61003, "dave": 61004}
SKIPPED = 77
PROGRAMS = {"gpumemd": "daemon", "gpumem": "client/cli"}
ACTOR = "tests/scenarios/gpumem-scenario-actor"


def until(what: str, condition: collections.abc.Callable[[], Any]) -> Any:
    """Asks again and again until the answer is true, and returns it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise Failure(f"never came true: {what}")
        time.sleep(0.01)
    return answer


class Actor(Speaker):
    """A process of gpumem-scenario-actor. It stands ready; `start` connects it."""

    def ask(self, command: str) -> Line:
        return self.answer(command, self.tell(command))

    def answer(self, command: str, start: int) -> Line:
        """To a command that `tell` sent."""
        did = command.split()[0]
        return self.await_line(command, lambda line: line["did"] == did, start)

    def must(self, command: str) -> Line:
        answer = self.ask(command)
        if not answer["ok"]:
            raise Failure(f"{self.label}: {command}: {answer['error']}")
        return answer

    def fill(self, target: int, step: int) -> None:
        """Grows to `target` bytes in steps, so that it is made of extents that can be given back in steps."""
        for _ in range(target // step):
            self.must(f"grow {step} 0")


@dataclasses.dataclass(frozen=True)
class StageOptions:
    """`broker`: more of the configuration's table of that name; `tenants`: what each one's table says besides its name and
    user. None: everybody is welcome, each user a tenant."""
    reserve: str = "24GiB"
    simulate: str = "1x26GiB"
    broker: str = ""
    tenants: dict[str, str] | None = None

    def config(self, state: pathlib.Path) -> str:
        text = f'[broker]\nreserve = "{self.reserve}"\nstate_dir = "{state}"\n{self.broker}\n'
        if self.tenants is None:
            return text
        text += f"socket_group = {GROUP}\n"
        for name, quota in self.tenants.items():
            text += f'[[tenant]]\nname = "{name}"\nuser = {USERS[name]}\n{quota}\n'
        return text + "[default]\nrefuse = true\n"


class Stage:
    """A broker with its folder, its events as they come, and its actors; from enter to exit."""

    def __init__(self, build: pathlib.Path, work: pathlib.Path, options: "StageOptions"):
        self._build = build
        self._work = work
        self._options = options
        self._ends = contextlib.ExitStack()
        self._started = 0
        self._said: list[Line] = []

    def __enter__(self) -> "Stage":
        programs = self._work / "prefix" / "bin"
        programs.mkdir(parents=True)
        self._work.chmod(0o755)
        for name, folder in PROGRAMS.items():
            (programs / name).symlink_to(self._build / folder / name)
        shutil.copy(self._build / ACTOR, programs)  # where every user can reach it
        (self._work / "gpumemd.toml").write_text(self._options.config(self._work / "state"))
        self.broker = Broker(self._work, self._options.simulate)
        try:
            self._start()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._ends.close()
        finally:
            self._note_events()

    def _start(self) -> None:
        self._started += 1
        self.broker.log = self._work / f"gpumemd-{self._started}.log"
        self._ends.enter_context(self.broker)
        self._watcher = self._watch()

    def _note_events(self) -> None:
        text = "".join(json.dumps(event) + "\n" for event in self.events())
        (self._work / "events.jsonl").write_text(text, encoding="utf-8")

    def _watch(self) -> Speaker:
        command = [self.broker.bin / "gpumem", "--runtime-dir", self.broker.runtime, "events", "--json",
                   "--since", "1970-01-01T00:00:00Z"]
        watcher = Speaker("gpumem events", command, self._work / "events.log")
        self._ends.callback(watcher.end)
        return watcher

    def restart(self) -> None:
        """Stops the broker, whose actors have left, and starts it again in the same folder."""
        self.broker.process.terminate()
        log = self._work / "events.log"
        until("all events of the broker are here", lambda: log.read_text().count("waiting for the broker") == self._started)
        self._said += self._watcher.said()
        self._ends.close()
        self._start()

    def actor(self, label: str, *arguments: str, tenant: str = "") -> Actor:
        """A process of the tenant's user; without one, of this process's."""
        user = {"user": USERS[tenant], "group": GROUP, "extra_groups": []} if tenant else {}
        actor = Actor(label, [self.broker.bin / pathlib.Path(ACTOR).name, label, *arguments], self._work / f"{label}.log",
                      env={**os.environ, "GPUMEM_RUNTIME_DIR": str(self.broker.runtime)}, **user)
        self._ends.callback(actor.end)
        return actor

    def started(self, label: str, *arguments: str, tenant: str = "") -> Actor:
        actor = self.actor(label, *arguments, tenant=tenant)
        actor.must("start")
        return actor

    def events(self) -> list[Line]:
        return self._said + self._watcher.said()

    def broker_events(self) -> list[Line]:
        """Of the broker that runs now."""
        return self._watcher.said()

    def await_event(self, kind: str, tenant: str, since: int = 0, **fields: Any) -> Line:
        """The first event of the kind and tenant that came after `since` of this broker's events."""
        wanted = {"kind": kind, "tenant": tenant, **fields}
        return self._watcher.await_line(f"{kind} of {tenant}", lambda line: wanted.items() <= line.items(), since)

    def event_count(self) -> int:
        """Of this broker: where await_event is to begin, for what is yet to come."""
        return len(self._watcher.said())

    def tenant(self, name: str) -> Line:
        return next(t for t in self.broker.tenants() if t["tenant"] == name and t["device"] == self.broker.device)

    def settle(self) -> None:
        """Waits until the events that have come account for every tenant's charge in the broker's ledger."""
        def accounted() -> bool:
            seen = self.broker_events()
            return all(history.charged(seen, t["tenant"]) == t["charged"] for t in self.broker.tenants())
        until("the events account for the ledger's charges", accounted)

    def leave(self, actors: list[Actor]) -> bool:
        """Makes the actors leave; returns once nothing is charged and no session is left."""
        for actor in actors:
            actor.tell("quit")
        for actor in actors:
            actor.wait()
        return until("all memory is free and all sessions are over", self._at_rest)

    def _at_rest(self) -> bool:
        status = self.broker.ask("status")
        return not status["sessions"] and all(device["free"] == device["pool"] for device in status["devices"])


class Play:
    """One run of a scenario: its stages, and whether what it was held to came true."""

    def __init__(self, options: argparse.Namespace, work: pathlib.Path):
        self.options = options
        self._work = work
        self.failed = 0

    def say(self, text: str) -> None:
        print(text, flush=True)

    def hold(self, held: bool, what: str, figure: object = "") -> None:
        self.failed += not held
        self.say(f"  {'ok  ' if held else 'FAIL'} {what}{f': {figure}' if figure != '' else ''}")

    def stage(self, name: str, options: StageOptions) -> Stage:
        return Stage(self.options.build.resolve(), self._work / name, options)

    def draw(self, picture: str) -> None:
        if self.options.picture:
            self.options.picture.write_text(picture, encoding="utf-8")
            self.say(f"  drawn: {self.options.picture}")


def run(about: str, scenario: collections.abc.Callable[[Play], None], users: bool = True, strict: str = "") -> int:
    """The program of a scenario. `users`: it needs several. `strict`: what the option of that name adds."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="build folder")
    parser.add_argument("--picture", type=pathlib.Path, metavar="FILE", help="draw what happened, as SVG")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="keep what all processes said there")
    if strict:
        parser.add_argument("--strict", action="store_true", help=strict)
    options = parser.parse_args()
    name = pathlib.Path(sys.argv[0]).stem
    if users and os.geteuid() != 0:
        print(f"gpumem: skipped: scenario.{name}: several tenants are several users: only root can start their processes")
        return SKIPPED
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work = pathlib.Path(tempfile.mkdtemp(prefix="gpumem-scenario-"))
    work.chmod(0o755)
    play = Play(options, work)
    try:
        scenario(play)
    except Failure as failure:
        print(f"{name}: {failure}", file=sys.stderr)
        return 1
    finally:
        if options.keep:
            shutil.copytree(work, options.keep, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("prefix", "run"))
        shutil.rmtree(work, ignore_errors=True)
    return 1 if play.failed else 0
