"""Programs that know nothing of gpumem, under way at once, that take turns: one trains while the others stand still."""
import concurrent.futures
import contextlib
import dataclasses
import os
import signal
import statistics
from typing import Any

from broker import Broker
from framework import Framework
from nvml import Device
from session import MIB, Session, amount
from watch import descendants

# Of turns, and how often as many are given again if a step takes too long.
ROUNDS, SHORT_ROUNDS, MORE = 12, 3, 1
TURN_STEPS, SHORT_TURN_STEPS = 25, 10
SLOWEST = 1.01
# Of the device: what a framework takes ahead without gpumem.
AHEAD = 0.2


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a program is. `size` is its slice's; 0 without gpumem."""
    framework: str
    way: str
    size: int

    @property
    def waits_for_device(self) -> bool:
        """Whether its steps say how long the device takes. `driver` computes on the host."""
        return self.framework != "driver"

    @property
    def label(self) -> str:
        return f"{self.framework}-{self.way}-{self.size // MIB}M"

    def __str__(self) -> str:
        return f"{self.framework}, {self.way}, {amount(self.size) if self.size else 'without gpumem'}"


class Program(Framework):
    """A program under way. Once go_on() has returned it stands still, or has ended. `at`: what it said at each stage, the
    last of a name; `times`: nanoseconds of every step after the warm-up."""

    def __init__(self, session: Session, device: Device, broker: Broker, kind: Kind, seconds: float):
        self.kind, self.stage, self.last = kind, "", "nothing"
        self.at: dict[str, dict[str, Any]] = {}
        self.times: list[int] = []
        variables = {"GPUMEM_ACCEPTANCE_WAY": kind.way, "GPUMEM_SHIM_FOLDER": str(session.layout.shim()),
                     "GPUMEM_ACCEPTANCE_STEPS": str(SHORT_TURN_STEPS if session.short else TURN_STEPS),
                     "GPUMEM_ACCEPTANCE_AHEAD": "0" if kind.size else str(AHEAD)}
        if session.driver_folder:
            variables["LD_LIBRARY_PATH"] = session.driver_folder
        prefix = [str(session.layout.program("gpumem")), "--runtime-dir", str(broker.runtime), "run", "--limit",
                  str(kind.size), "--name", kind.label, "--no-framework-settings", "--"] if kind.size else []
        super().__init__(session, device, f"plain_{kind.framework}", session.lendable, seconds, variables, prefix)

    def go_on(self, until: str, word: str = "") -> None:
        """Answers the stage at which it stands with `word`, and lets it go on to the stage `until`, or to its end."""
        if self.stage:
            self.answer(word)
        self.stage = ""
        while (said := self.next_stage()) is not None:
            self.last = said["stage"]
            self.at[self.last] = said
            self.times += said.pop("times", [])
            if self.last == until:
                self.stage = until
                return
            self.answer()

    def kill(self) -> None:
        for pid in descendants(self.pid):  # they outlive a `gpumem run` that is killed
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().kill()

    def step_ns(self) -> int:
        return round(statistics.median(self.times)) if self.times else 0


def ratios(group: list[Program]) -> list[tuple[Program, float]]:
    """Of those in a slice, if they and the one without gpumem have trained: how many times as long a step takes."""
    without, *parts = group
    return [(part, part.step_ns() / without.step_ns()) for part in parts if part.times and without.times]


def train(session: Session, group: list[Program]) -> int:
    """Lets them take turns. Answers how many rounds."""
    rounds = SHORT_ROUNDS if session.short else ROUNDS
    for tried in range(1 + MORE):
        for number in range(rounds):
            for program in reversed(group) if number % 2 else group:
                if program.stage == "turn":
                    program.go_on("turn", "train")
        if session.simulated or all(ratio <= SLOWEST for part, ratio in ratios(group) if part.kind.waits_for_device):
            break
    return rounds * (1 + tried)


def play(session: Session, group: list[Program]) -> int:
    """From the start to the last stage. Answers how many rounds."""
    with concurrent.futures.ThreadPoolExecutor(len(group)) as starting:
        list(starting.map(lambda program: program.go_on("turn"), group))
    rounds = train(session, group)
    # The one without gpumem last: what it takes of the device, the broker may charge to all.
    for program in [*group[1:], group[0]]:
        program.go_on("end", "stop")
    return rounds
